import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from chassis.http import server as http_server
from chassis.http.server import HttpService, HttpServiceSettings
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings
from shop_kit.waiting import wait_until

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
PROBE = b"GET /readyz HTTP/1.1\r\nHost: test\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n"
WAIT, ENDLESS = GET.replace(b"/ ", b"/wait "), GET.replace(b"/ ", b"/endless ")


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of this test's event loop forward by some seconds."""
    ahead = 0.0

    def add(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds
        loop = asyncio.get_running_loop()
        real = type(loop).time
        monkeypatch.setattr(loop, "time", lambda: real(loop) + ahead)

    return add


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        """Return all data that the server sends before it closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@dataclass
class Server:
    """A running server. Its page `/wait` responds once `released` is set."""

    telemetry: Telemetry = field(default_factory=Telemetry)
    port: int = 0
    waiting: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    clients: AsyncExitStack = field(default_factory=AsyncExitStack)

    def app(self) -> Starlette:
        async def echo(request: Request) -> Response:
            self.arrived.set()
            return PlainTextResponse(await request.body())

        async def wait(_request: Request) -> Response:
            self.waiting += 1
            self.arrived.set()
            await self.released.wait()
            return PlainTextResponse("waited")

        async def endless(_request: Request) -> Response:
            async def parts() -> AsyncIterator[bytes]:
                while True:
                    yield bytes(65_536)
                    self.arrived.set()
                    await asyncio.sleep(0)

            return StreamingResponse(parts())

        paths: dict[str, Any] = {"/": PlainTextResponse("home"), "/wait": wait, "/endless": endless}
        routes = [Route("/echo", echo, methods=["POST"]), *(Route(path, handler) for path, handler in paths.items())]
        return Starlette(routes=routes)

    async def connect(self, data: bytes = b"", address: str = "127.0.0.1") -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0)))
        self.clients.callback(client.writer.close)
        await client.send(data)
        return client

    async def recorded(self, count: int = 1) -> list[tuple[str, str]]:
        """Wait until `count` requests have ended. Return the status and error type of each series of durations."""
        durations = self.telemetry.histogram(semconv.HTTP_SERVER_DURATION)
        await wait_until(lambda: sum(sum(found.counts) for found in durations.series.values()) >= count)
        series = [dict(attributes) for attributes in durations.series]
        return [(str(found[semconv.HTTP_STATUS]), str(found.get(semconv.ERROR_TYPE))) for found in series]


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Server]:
    server = Server()
    service = HttpService(load_settings(HttpServiceSettings, settings), server.telemetry)
    async with http_server.serving(service, nullcontext(server.app())) as ports:
        server.port = ports["port"]
        async with server.clients:
            yield server
            server.released.set()


async def settle(server: Server) -> None:
    """Wait until the server has read everything that accepted connections have sent so far."""
    for _ in range(3):
        client = await server.connect(GET)
        await client.response()
        client.writer.close()


@pytest.mark.parametrize("head", [b"", b"G", b"GET / HTTP/1.1\r\n", GET[:-2] + b"X-A: b\r\n"])
async def test_a_connection_whose_head_takes_too_long_is_closed(head: bytes, advance: Callable[[float], None]) -> None:
    async with serving(header_timeout_seconds=10) as server:
        client = await server.connect(head)
        await settle(server)
        advance(9)
        await settle(server)
        await client.send(b"X")  # this must not restart the timer
        await settle(server)
        advance(2)
        assert await client.rest() == b""


async def test_a_connection_may_be_idle_for_longer_between_requests(advance: Callable[[float], None]) -> None:
    async with serving(header_timeout_seconds=10) as server:
        client = await server.connect(GET)
        assert (await client.response())[0] == 200
        advance(60)
        await settle(server)
        await client.send(GET)
        assert (await client.response())[0] == 200
        await client.send(GET[:9])
        await settle(server)
        advance(11)
        assert await client.rest() == b""


async def test_a_body_that_takes_too_long_gets_408_and_is_recorded_as_such(advance: Callable[[float], None]) -> None:
    async with serving(header_timeout_seconds=10, body_timeout_seconds=30) as server:
        client = await server.connect(POST + b"abc")
        await server.arrived.wait()
        advance(29)
        await client.send(b"d")
        await settle(server)
        advance(2)
        assert (await client.rest()).startswith(b"HTTP/1.1 408 ")
        assert ("408", "None") in await server.recorded()


async def test_a_request_that_has_arrived_may_take_any_time(advance: Callable[[float], None]) -> None:
    async with serving(header_timeout_seconds=10, body_timeout_seconds=30) as server:
        client = await server.connect(WAIT + GET[:5])
        await server.arrived.wait()
        advance(300)
        server.released.set()
        assert await client.response() == (200, b"waited")
        await client.send(GET[5:])
        assert await client.response() == (200, b"home")


async def test_requests_beyond_the_limit_get_503_but_for_probes_and_the_others_are_served() -> None:
    async with serving(max_connections=2) as server:
        idle = [await server.connect(GET) for _ in range(3)]
        assert [(await client.response())[0] for client in idle] == [200] * 3
        served = [await server.connect(WAIT) for _ in range(2)]
        await wait_until(lambda: server.waiting == 2)
        refused = await (await server.connect(GET)).rest()
        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nretry-after: 5\r\n" in refused
        assert (await (await server.connect(POST + b"hello")).rest()).startswith(b"HTTP/1.1 503 ")
        assert (await (await server.connect(PROBE)).response())[0] == 200
        server.released.set()
        assert [(await client.response())[0] for client in served] == [200] * 2
        assert (await (await server.connect(GET)).response())[0] == 200


async def test_bodies_that_never_come_take_no_requests_of_others() -> None:
    async with serving(max_connections=2) as server:
        for _ in range(4):
            await server.connect(POST + b"ab")
        assert await (await server.connect(GET)).response() == (200, b"home")


async def test_beyond_the_limit_of_connections_the_oldest_idle_one_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_SPARE_CONNECTIONS", 0)
    async with serving(max_connections=4) as server:
        busy = await server.connect(WAIT)
        await server.arrived.wait()
        kept = await server.connect(GET)
        assert (await kept.response())[0] == 200
        half = await server.connect(GET[:9])
        body = await server.connect(POST + b"ab")
        for yields in (kept, half, body):
            newest = await server.connect(GET)
            assert await newest.response() == (200, b"home")
            assert await yields.rest() == b""
        server.released.set()
        assert await busy.response() == (200, b"waited")
        shed = server.telemetry.counter(semconv.SHED_REQUESTS).values
        assert shed[("shop.port.name", "http"), ("shop.server.shed.reason", "connection")] == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_the_network_with_the_most_connections_yields_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_SPARE_CONNECTIONS", 0)
    async with serving(max_connections=3) as server:
        few = await server.connect(GET, "127.0.0.2")
        assert (await few.response())[0] == 200
        many = [await server.connect(GET) for _ in range(2)]
        assert [(await client.response())[0] for client in many] == [200] * 2
        newest = await server.connect(GET)
        assert await newest.response() == (200, b"home")
        assert await many[0].rest() == b""
        await few.send(GET)
        assert await few.response() == (200, b"home")


@pytest.mark.parametrize(
    "request_text",
    [b"GET / HTTP/9\r\n\r\n", b"\x16\x03\x01\x00", b"\r\n\r\n", POST[:40] + b"\r\n", GET[:-2] + b"Host: other\r\n"],
)
async def test_an_invalid_head_gets_400(request_text: bytes) -> None:
    async with serving() as server:
        response = await (await server.connect(request_text + b"\r\n\r\n")).rest()
    assert response.startswith(b"HTTP/1.1 400 ")


async def test_an_invalid_chunk_gets_400_and_one_during_the_response_ends_it() -> None:
    chunked = b"POST %s HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as server:
        client = await server.connect(chunked % b"/echo")
        await server.arrived.wait()
        await client.send(b"no length\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
        download = await server.connect(chunked.replace(b"POST", b"GET") % b"/endless")
        await download.reader.readuntil(b"\r\n\r\n")
        await download.send(b"no length\r\n")
        assert b"HTTP/1.1" not in await download.rest()
        assert await server.recorded(2) == [("499", "None")] * 2


@pytest.mark.parametrize(
    "request_text", [POST + b"ab", WAIT, ENDLESS], ids=["during its upload", "while it waits", "during its download"]
)
async def test_a_client_that_leaves_is_recorded_as_499(request_text: bytes) -> None:
    async with serving() as server:
        with structlog.testing.capture_logs() as lines:
            client = await server.connect(request_text)
            await server.arrived.wait()
            client.writer.close()
            await settle(server)
            server.released.set()
            assert ("499", "None") in await server.recorded(4)
    assert sorted((line["event"], line["log_level"], line["status"]) for line in lines) == [
        *[("request", "info", 200)] * 3,
        ("request", "info", 499),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this option")
async def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_STALL_SECONDS", 1)
    async with serving() as server:
        client = await server.connect(ENDLESS)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await server.recorded() == [("499", "None")]


@pytest.mark.parametrize("path", [b"/echo", b"/healthz"])
async def test_a_request_with_two_lengths_is_refused_with_what_follows_it(path: bytes) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving() as server:
        client = await server.connect(head + b"0\r\n\r\n" + GET)
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"HTTP/1.1") == 1
    refusals = server.telemetry.counter(semconv.HTTP_REFUSALS)
    assert refusals.values == {((semconv.HTTP_REFUSAL_REASON, "length"),): 1}
