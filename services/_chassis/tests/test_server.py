import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import grpc
import orjson
import pytest

from chassis.rpc import server
from chassis.settings import ServiceSettings
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2
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
def test_proxies_of_the_environment_are_ignored_unless_a_setting_asks(
    tmp_path: Path, setting: str, left: list[str]
) -> None:
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
