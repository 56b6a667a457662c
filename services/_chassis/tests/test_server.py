import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, cast

import grpc
import orjson
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from opentelemetry.trace import StatusCode
from structlog.testing import capture_logs

from chassis import errors
from chassis.deadline import remaining_seconds
from chassis.rpc import listener, server
from chassis.settings import ServiceSettings
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2, cart_pb2_grpc
from shop_kit.carts import Carts, Handler, raising
from shop_kit.failing import error_of
from shop_kit.serving import Recorded, connect, health, serve
from shop_kit.settings import load_settings
from shop_kit.waiting import wait_until

PROGRAM = """
import asyncio
import gc
import os
from contextlib import asynccontextmanager
from chassis.background import in_background
from chassis.rpc.server import run
from chassis.settings import ServiceSettings
from shop import cart_pb2, cart_pb2_grpc

class Carts(cart_pb2_grpc.CartServiceServicer):
    async def GetCart(self, request, context):
        print("entered", flush=True)
        await asyncio.sleep(1)
        return cart_pb2.Cart(user_id=request.user_id)
    async def AddItem(self, request, context): ...
    async def EmptyCart(self, request, context): ...

@asynccontextmanager
async def build(settings, service):
    print("proxies", *sorted(name for name in os.environ if name.lower() in ("http_proxy", "all_proxy")), flush=True)
    service.add_servicer(cart_pb2_grpc.add_CartServiceServicer_to_server, Carts())
    service.add_internal_servicer(cart_pb2_grpc.add_CartServiceServicer_to_server, Carts())
    async with in_background(asyncio.Event().wait):
        yield
    print("frozen", gc.get_freeze_count(), flush=True)
    print("closed", flush=True)

run("cart", ServiceSettings, build)
"""


@contextmanager
def process(tmp_path: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    settings = {"HOST": "127.0.0.1", "PORT": "0", "INTERNAL_PORT": "0", "DRAIN_SECONDS": "0.2", **environment}
    command, pipe = [sys.executable, str(program)], subprocess.PIPE
    running = subprocess.Popen(command, env=os.environ | settings, stdout=pipe, stderr=pipe, text=True)
    assert running.stdout
    try:
        yield running, running.stdout
    finally:
        running.kill()
        running.communicate()


def port_of(output: IO[str]) -> int:
    assert output.readline() == "proxies\n"
    event = orjson.loads(output.readline())
    assert event["event"] == "serving"
    return int(event["port"])


def test_sigterm_finishes_the_calls_in_flight_and_exits_with_status_0(tmp_path: Path) -> None:
    with process(tmp_path) as (running, output), grpc.insecure_channel(f"127.0.0.1:{port_of(output)}") as channel:
        get_cart: Any = channel.unary_unary("/shop.CartService/GetCart", response_deserializer=cart_pb2.Cart.FromString)
        call = get_cart.future(cart_pb2.GetCartRequest(user_id="u").SerializeToString())
        assert output.readline() == "entered\n"
        running.send_signal(signal.SIGTERM)
        assert call.result().user_id == "u"
        assert running.wait() == 0
        lines = output.readlines()
    assert "closed\n" in lines
    # Objects created before serving are exempt from garbage collection.
    [frozen] = [line.split()[1] for line in lines if line.startswith("frozen")]
    assert int(frozen) > 10_000


@pytest.mark.parametrize(("setting", "left"), [("", []), ("1", ["ALL_PROXY", "http_proxy"])])
def test_environment_proxies_are_ignored_unless_a_setting_asks(tmp_path: Path, setting: str, left: list[str]) -> None:
    proxies = {"http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1"}
    with process(tmp_path, USE_HTTP_PROXY=setting, **proxies) as (_, output):
        assert output.readline().split() == ["proxies", *left]


def test_a_port_in_use_fails_the_start_with_its_address(tmp_path: Path) -> None:
    with process(tmp_path) as (_, output):
        port = port_of(output)
        with process(tmp_path, PORT=str(port)) as (second, _):
            _, errors = second.communicate()
    assert second.returncode == 1
    assert f"127.0.0.1:{port}: is the port in use, or HOST wrong?" in errors
    assert "Traceback" not in errors


def test_with_reload_a_changed_source_file_restarts_the_service(tmp_path: Path) -> None:
    with process(tmp_path, RELOAD="1") as (running, output):
        port_of(output)
        (tmp_path / "program.py").write_text(PROGRAM.replace('"closed"', '"closed again"'))
        while "draining" not in output.readline():
            pass
        while "serving" not in output.readline():
            pass
        running.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        assert "closed again\n" in output.readlines()


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps it")
async def test_freed_memory_is_returned_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    monkeypatch.setattr(server, "_TRIM_SECONDS", 0.05)
    blocks = [b"block" * 2_000 for _ in range(5_000)]
    del blocks[:-1]  # keep the last block, so that the heap cannot shrink from its end
    held = resident_bytes()
    async with server.serving(server.Service(load_settings(ServiceSettings, {}), Telemetry()), nullcontext()):
        await wait_until(lambda: resident_bytes() < held - 40_000_000)


class CartLost(errors.NotFound):
    pass


async def failure_of(handle: Handler, recorded: Recorded | None = None) -> grpc.aio.AioRpcError:
    telemetry = recorded.telemetry if recorded else None
    async with connect(Carts(handle), telemetry=telemetry) as channel:
        return await error_of(cart_pb2_grpc.CartServiceStub(channel).GetCart(cart_pb2.GetCartRequest(user_id="u")))


@pytest.mark.parametrize("kind", errors.KINDS.values())
async def test_each_kind_of_error_has_the_status_code_of_its_name(kind: type[errors.DomainError]) -> None:
    assert (await failure_of(raising(kind(message="x")))).code().name == kind.default_reason


@pytest.mark.parametrize(
    ("raised", "logged"), [(ValueError("the secret"), ["unexpected error"]), (errors.Internal("a peer's secret"), [])]
)
async def test_an_internal_error_is_hidden_from_the_caller_and_logged_unless_it_is_a_peers(
    raised: Exception, logged: list[str]
) -> None:
    with capture_logs() as logs:
        error = await failure_of(raising(raised))
    assert (error.code(), error.details()) == (grpc.StatusCode.INTERNAL, "internal error")
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == logged


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\n\x02\xff\xfe"], ids=["no message", "no UTF-8"])
async def test_malformed_bytes_are_an_invalid_argument(raw: bytes) -> None:
    async with connect(Carts()) as channel:
        get_cart: Any = channel.unary_unary("/shop.CartService/GetCart")
        failure = await error_of(get_cart(raw))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = rpc_status.from_call(cast("grpc.Call", failure))  # from_call only reads what an AioRpcError also has
    assert status.details[0].Unpack(info := error_details_pb2.ErrorInfo())
    assert (info.reason, info.domain) == ("MALFORMED_MESSAGE", "shop")


async def test_a_call_that_is_half_closed_without_a_message_is_an_invalid_argument() -> None:
    async with connect(Carts()) as channel:
        get_cart: Any = channel.stream_unary("/shop.CartService/GetCart")
        failure = await error_of(get_cart(iter(())))
    assert failure.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert failure.details() == "the call ended without a request message"


async def test_a_probe_does_not_wait_behind_a_backlog_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    backlog = 500
    monkeypatch.setattr(listener, "_MAX_CALLS", backlog)
    alone = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own, or it would wait behind the calls there
    async with (
        serve(Carts()) as address,
        grpc.aio.insecure_channel(address) as channel,
        grpc.aio.insecure_channel(address, alone) as prober,
    ):
        stub = cart_pb2_grpc.CartServiceStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest())  # opens the connection
        await prober.channel_ready()
        calls_in_flight = [asyncio.ensure_future(stub.GetCart(cart_pb2.GetCartRequest())) for _ in range(backlog)]
        await asyncio.sleep(0)
        assert await health(prober, "liveness") == "SERVING"
        answered = sum(call.done() for call in calls_in_flight)
        await asyncio.gather(*calls_in_flight)
    assert answered < backlog / 2  # usually up to 3; with one queue for all methods, nearly all of them


async def test_the_handler_sees_the_caller_s_deadline() -> None:
    seen: list[float | None] = []
    async with connect(Carts(lambda _: seen.append(remaining_seconds()))) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)
        await stub.GetCart(cart_pb2.GetCartRequest(), timeout=30)
        await stub.GetCart(cart_pb2.GetCartRequest())
    assert seen[0] is not None
    assert 20 < seen[0] <= 31
    assert seen[1] is None


async def test_a_call_is_recorded_by_method_and_status_with_its_span(recorded: Recorded) -> None:
    await failure_of(raising(CartLost("lost")), recorded)
    (span,) = recorded.spans()
    assert span.name == "shop.CartService/GetCart"
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": "shop.CartService/GetCart",
        "rpc.response.status_code": "NOT_FOUND",
        "shop.error.reason": "CART_LOST",
    }
    assert span.status.status_code is StatusCode.UNSET
    ((attributes, series),) = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series.items()
    assert (dict(attributes)["rpc.response.status_code"], "error.type" in dict(attributes)) == ("NOT_FOUND", False)
    assert sum(series.counts) == 1
    assert [exemplar.span_id for *_, exemplar in series.exemplars.values()] == [span.context.span_id]


@pytest.mark.parametrize(
    ("error", "error_type", "reason"),
    [(ValueError("a secret"), "INTERNAL", "ValueError"), (errors.Unavailable("a secret"), *["UNAVAILABLE"] * 2)],
)
async def test_a_failure_of_the_server_is_recorded_as_such_without_its_text(
    recorded: Recorded, error: Exception, error_type: str, reason: str
) -> None:
    await failure_of(raising(error), recorded)
    (span,) = recorded.spans()
    assert span.status.status_code is StatusCode.ERROR
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["shop.error.reason"]) == (error_type, reason)
    assert "secret" not in span.to_json()
    [labels] = recorded.telemetry.histogram(semconv.RPC_SERVER_DURATION).series
    assert dict(labels)["error.type"] == error_type
