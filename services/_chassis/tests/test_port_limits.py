import asyncio
import select
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
import pytest_asyncio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis.rpc import limits
from chassis.telemetry import refusals
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts
from shop_kit.failing import outcome
from shop_kit.http2 import CONTINUATION, HEADERS, PREFACE, Connection, call, frame, header, message, settings
from shop_kit.metrics import measured
from shop_kit.serving import health, running
from shop_kit.waiting import wait_until

# One loop for all: with a closed one, what is left of an earlier test's calls would be logged as an error of gRPC.
pytestmark = pytest.mark.asyncio(loop_scope="module")
GET_CART = b"/shop.CartService/GetCart"
REFUSED_STREAM = 7
ALONE = [("grpc.use_local_subchannel_pool", 1)]


@dataclass
class Port:
    """A running service's public port, its internal port, which serves the same methods, and its health port."""

    number: int
    internal: int
    health: int | None
    metrics: Callable[[], dict[Any, float]]
    clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def connect(self, sent: bytes = PREFACE, number: int = 0) -> Connection:
        connection = await Connection.open(number or self.number, sent)
        self.clients.callback(connection.close)
        return connection

    async def serves(self) -> bool:
        """Return whether a new client is served."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.number}", ALONE) as channel:
            stub = cart_pb2_grpc.CartServiceStub(channel)
            return await outcome(stub.GetCart(cart_pb2.GetCartRequest(), wait_for_ready=True)) == "OK"

    def refused(self, reason: str, port: str = "public") -> float:
        attributes = ("shop.port.name", port), ("shop.server.shed.reason", reason)
        return self.metrics()["shop.server.shed_requests", *attributes]


@asynccontextmanager
async def serving(carts: Carts | None = None, **values: Any) -> AsyncIterator[Port]:
    telemetry, metrics = measured()
    served = carts or Carts()
    async with running(served, internal=[served], telemetry=telemetry, **values) as service:
        port = Port(service.port, service.internal_port or 0, service.health_port, metrics)
        async with port.clients:
            yield port


@pytest_asyncio.fixture(loop_scope="module")
async def port() -> AsyncIterator[Port]:
    async with serving() as running:
        yield running


def begun(count: int, first: int = 1, path: bytes = GET_CART) -> bytes:
    """Return the bytes of calls without a request message."""
    return b"".join(call(path, stream=first + 2 * number, body=None) for number in range(count))


async def status(port: int, request: bytes) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", ALONE) as channel:
        get_cart: Any = channel.unary_unary(GET_CART.decode())
        return await outcome(get_cart(request))


@pytest.mark.parametrize(("name", "most"), [("number", 32), ("internal", 100)])
async def test_a_connection_has_no_more_calls_at_once(port: Port, name: str, most: int) -> None:
    client = await port.connect(number=getattr(port, name))
    await wait_until(lambda: client.settings)
    await client.send(begun(most + 8))
    await wait_until(lambda: len(client.resets) >= 8)
    assert {*client.resets.values()} == {REFUSED_STREAM}
    assert min(client.resets) > 2 * most
    assert await port.serves()


async def test_a_request_is_larger_on_the_internal_port_alone(port: Port) -> None:
    sizes = {60 * 1024: ["OK", "OK"], 64 * 1024: ["RESOURCE_EXHAUSTED", "OK"], 5_000_000: ["RESOURCE_EXHAUSTED"] * 2}
    for size, expected in sizes.items():
        request = cart_pb2.GetCartRequest(user_id="u" * size).SerializeToString()
        assert [await status(number, request) for number in (port.number, port.internal)] == expected


async def test_of_too_many_connections_those_without_a_call_yield_and_probes_have_a_port() -> None:
    async with serving(max_connections=3, health_port=0) as port:
        own = await port.connect(PREFACE + call(GET_CART, body=message(b"")))
        await wait_until(lambda: own.ended)
        idle = [await port.connect() for _ in range(5)]
        await wait_until(lambda: sum(client.closed.is_set() for client in idle) == 3)
        assert port.refused("connection") == 3
        assert await port.serves()
        assert not own.closed.is_set()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.health}") as probed:
            assert await health(probed, "liveness") == "SERVING"


async def test_a_port_without_file_descriptors_for_its_checks_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_UNCHECKED_CALLS", 0)
    monkeypatch.setattr(limits, "_connections", Mock(side_effect=OSError))
    async with serving() as port:
        assert await port.serves()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has epoll")
async def test_a_connection_whose_end_grpc_missed_is_reported_again() -> None:
    assert sys.platform == "linux"  # for mypy
    with socket.create_server(("127.0.0.1", 0)) as listening, select.epoll() as polled:
        client = socket.create_connection(listening.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset when closed
        with listening.accept()[0] as served:
            client.close()
            polled.register(served, select.EPOLLIN | select.EPOLLET)
            assert [len(polled.poll(timeout)) for timeout in (5, 0)] == [1, 0]
            peers = limits.Peers(9, Mock())
            _, peers.port = listening.getsockname()
            assert (peers.check(), len(polled.poll(5))) == (0, 1)
        socket.create_connection(listening.getsockname()).close()


async def test_a_request_that_takes_too_long_to_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_REQUEST_SECONDS", 0.2)
    async with serving() as port:
        half = frame(0, 0, 1, message(bytes(1000))[:500])
        client = await port.connect(PREFACE + begun(2) + half)
        await wait_until(lambda: client.ended == {1, 3})
        assert port.refused("no_request") == 2


async def test_a_client_that_does_not_acknowledge_the_settings_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [(name, 200 if name == "grpc.http2.settings_timeout" else value) for name, value in limits.OPTIONS]
    monkeypatch.setattr(limits, "OPTIONS", quick)
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(PREFACE)
        assert await reader.read()
        writer.close()


WATCH = b"/grpc.health.v1.Health/Watch"


@pytest.mark.parametrize(
    ("reason", "path", "body"),
    [("no_request", GET_CART, None), ("open_call", WATCH, message(b"")), ("unread_response", GET_CART, message(b""))],
)
async def test_the_connection_that_holds_the_most_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str, path: bytes, body: bytes | None
) -> None:
    monkeypatch.setattr(limits, "_MAX_BYTES", 200_000)
    monkeypatch.setattr(limits, "_CALL_BYTES", 0 if body is None else limits._CALL_BYTES)  # 0: only sent data counts
    sent, large = {"x": 7_000 * b"a"} if body is None else {}, cart_pb2.Cart(user_id="u" * 50_000)
    async with serving(Carts(lambda _: large)) as port:
        few, many = [
            await port.connect(
                PREFACE
                + settings(_4=0)
                + b"".join(call(path, stream=1 + 2 * n, body=body, metadata=sent) for n in range(count))
            )
            for count in (1, 40)
        ]
        await many.closed.wait()
        assert await port.serves()
        assert port.refused(reason) == 1
        assert not few.closed.is_set()
    assert caplog.records == []


async def test_a_watch_that_is_not_read_holds_nothing_up(port: Port) -> None:
    watch = call(WATCH, body=message(b""))
    unread = await port.connect(PREFACE + settings(_4=0) + watch)
    await wait_until(lambda: unread.received[1])  # the response headers of the watch
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port.number}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        reader = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await reader.read()).status == health_pb2.HealthCheckResponse.SERVING
        reader.cancel()


MANY = b"".join(header(b"x-%03d" % number, b"a" * 10_000) for number in range(100))
BLOCK = call()[9:]
BROKEN = {
    "1 MB of headers": frame(HEADERS, 1, 1, BLOCK)
    + b"".join(frame(CONTINUATION, 0, 1, MANY[at : at + 16_000]) for at in range(0, len(MANY), 16_000))
    + frame(CONTINUATION, 4, 1),
    "headers without an end": frame(HEADERS, 1, 1, BLOCK) + 1000 * frame(CONTINUATION, 0, 1),
    "no HPACK": frame(HEADERS, 5, 1, b"\xff" * 100),
    "a path twice": frame(HEADERS, 5, 1, BLOCK + header(b":path", b"/b")),
    "bytes that are no text": frame(HEADERS, 5, 1, BLOCK + header(b"x-a", b"\xff\x00")),
    "no base64": call(metadata={"x-bin": b"!!!"}),
    "a bad timeout": call(metadata={"grpc-timeout": b"9" * 30 + b"S"}),
    "another content type": call(metadata={"content-type": b"text/html"}),
    "pings": 50 * frame(6, 0, 0, bytes(8)),
}


async def test_broken_headers_and_frames_harm_no_other_client(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_REQUEST_SECONDS", 3600)
    with structlog.testing.capture_logs() as logs:
        for sent in BROKEN.values():
            await port.connect(PREFACE + sent)
        assert await port.serves()
        assert await port.serves()
    assert logs == []


@pytest.mark.parametrize(
    "service",
    [
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.Health/Watch",
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_malformed_requests_of_health_and_reflection_are_invalid_arguments(
    port: Port, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port.number}") as channel:
        method: Any = channel.stream_stream(f"/{service}")
        assert await outcome(method(iter([b"\xff\xff4111111111111111"])).read()) == "INVALID_ARGUMENT"
    assert caplog.records == []


async def test_a_flood_of_refusals_is_one_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_LOG_SECONDS", 0.2)
    monkeypatch.setattr(limits, "_REQUEST_SECONDS", 0)
    with structlog.testing.capture_logs() as logs:
        async with serving() as port:
            await port.connect(PREFACE + begun(30))
            await wait_until(lambda: logs)
    expected = {"event": "requests refused", "port": "public", "no_request": logs[0]["no_request"]}
    assert {key: value for key, value in logs[0].items() if key != "log_level"} == expected
