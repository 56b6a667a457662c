"""`shop up` and `shop demo`, run as a user runs them."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest

from shop_cli.control_room.running import PORT as CONTROL_ROOM_PORT
from shop_cli.local.ports import HOST, PortInUse, require_free
from shop_cli.local.workspace import MAX_PORT_OFFSET, PORT_STEP, default_ports, discover
from shop_kit.signals import interruptible
from shop_kit.waiting import wait_until

# An order needs all services but ad and recommendation.
ORDER_SERVICES = {"cart", "product-catalog", "shipping", "currency", "payment", "email", "checkout"}
STATE_LINE = re.compile(r"(?P<name>\S+) +(?P<address>127\.0\.0\.1:[0-9]+) +(?P<state>.+)")


@asynccontextmanager
async def command(*arguments: str, **variables: str) -> AsyncIterator[Process]:
    """Run the command with its output in a pipe; kill it if it still runs on leaving."""
    process = await asyncio.create_subprocess_exec(
        *interruptible("-m", "shop_cli", *arguments), stdout=PIPE, stderr=STDOUT, env={**os.environ, **variables}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def wait_until_serving(process: Process, count: int) -> None:
    """Read the output until so many services are serving."""
    assert process.stdout
    serving: set[str] = set()
    while len(serving) < count:
        line = (await process.stdout.readline()).decode()
        assert line, f"the command ended when only {serving} were serving"
        if (match := STATE_LINE.match(line)) and match["state"] == "serving":
            serving.add(match["name"])


async def run_in(folder: Path, *arguments: str) -> str:
    """Run a command in a folder and return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shop_cli", *arguments, cwd=folder, stdout=PIPE, stderr=STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def refusal_of(*arguments: str) -> str:
    """Run a command that must be refused, and return the line that says why."""
    async with command(*arguments) as process:
        output, _ = await process.communicate()
    assert process.returncode == 1
    (line,) = output.decode().splitlines()
    return line


async def stop(process: Process) -> None:
    process.send_signal(signal.SIGINT)
    await process.communicate()


async def read_until(process: Process, *texts: str) -> str:
    """Read the output until a line contains all texts; return all of it."""
    assert process.stdout
    output = line = ""
    while not all(text in line for text in texts):
        line = (await process.stdout.readline()).decode()
        assert line, f"the command ended without {texts}: {output}"
        output += line
    return output


async def is_placed_in(folder: Path) -> bool:
    """Order the cart of ada, once however often it is tried: services may not have connected to their stores again."""
    command = (sys.executable, "-m", "shop_cli", "order", "ada", "--key", "once")
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=PIPE, stderr=STDOUT)
    await process.communicate()
    return process.returncode == 0


def children(pid: int) -> set[int]:
    """Return the ids of the running child processes of a process."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def environment_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


def running(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


async def test_up_says_what_to_open_is_alone_in_its_folder_and_stops_everything_on_ctrl_c(tmp_path: Path) -> None:
    arguments = ("up", "--any-ports", "--folder", str(tmp_path))
    telemetry = {"OTEL_BSP_SCHEDULE_DELAY": "321", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    async with command(*arguments, **telemetry) as process:
        text = await read_until(process, f"{Path(sys.executable).with_name('shop')} order")
        services = children(process.pid)
        environments = [environment_of(pid) for pid in services]
        async with command(*arguments) as second:
            refusal, _ = await second.communicate()
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    assert re.search(r"The shop is ready.*http://localhost:[0-9]+/\?token=\S+", text, re.DOTALL)
    assert re.search(r"the employee API  http://localhost:[0-9]+/docs", text)
    assert second.returncode == 1
    assert re.fullmatch(r"SHOP_RUNNING: .*`\S+/shop up --folder OTHER --any-ports`\n", refusal.decode())
    assert process.returncode == 0
    assert output.decode().splitlines()[-1] == "stopped"
    assert len(services) == len(discover())
    assert running(services) == set()
    assert "without effect, as OTEL_EXPORTER_OTLP_ENDPOINT is not set: OTEL_EXPORTER_OTLP_HEADERS\n" in text
    assert {"OTEL_BSP_SCHEDULE_DELAY=321" in found and "a=b" not in found for found in environments} == {True}


async def test_up_restarts_a_service_that_dies_and_leaves_no_process_behind_when_killed(tmp_path: Path) -> None:
    async with command("up", "--any-ports", "--folder", str(tmp_path)) as process:
        await wait_until_serving(process, len(discover()))
        services = children(process.pid)
        killed = min(services)
        os.kill(killed, signal.SIGKILL)
        await wait_until_serving(process, 1)
        services |= children(process.pid)
        process.kill()
        await process.wait()
        await wait_until(lambda: not running(services))
    assert len(services) == len(discover()) + 1


@pytest.mark.parametrize("name", ["up", "demo"])
async def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    line = await refusal_of(name, "--folder", str(tmp_path / "file"))
    assert line.startswith("FOLDER_NOT_WRITABLE: cannot write to ")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a path that is short enough for a Unix socket, unlike some of pytest's."""
    with tempfile.TemporaryDirectory(prefix="shop-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def test_up_with_postgres_stores_orders_there_and_has_them_after_a_restart(short_path: Path) -> None:
    arguments = ("up", "--any-ports", "--postgres", "--folder", str(short_path))
    async with command(*arguments) as process:
        await read_until(process, "is ready")
        await run_in(short_path, "cart", "add", "ada", "copper-kettle")
        for action, state in (("freeze", "frozen"), ("resume", "serving"), ("kill", "serving")):
            for store, address in (("postgres", "Unix socket "), ("valkey", "127.0.0.1")):
                await run_in(short_path, action, store)
                await read_until(process, f"{store:<16} {address}", state)
        await wait_until(partial(is_placed_in, short_path))
        await run_in(short_path, "cart", "add", "ada", "copper-kettle", "--quantity", "7")
        await stop(process)
    async with command(*arguments) as process:
        await read_until(process, "is ready")
        orders = await run_in(short_path, "orders", "list")
        cart = await run_in(short_path, "cart", "show", "ada")
        await stop(process)
    assert "1 order" in orders
    assert " 7" in cart
    assert not (short_path / ".shop" / "checkout.db").exists()


async def test_up_with_postgres_in_a_folder_with_a_long_path_is_one_line(tmp_path: Path) -> None:
    line = await refusal_of("up", "--any-ports", "--postgres", "--folder", str(tmp_path / ("x" * 100)))
    assert re.fullmatch("PATH_TOO_LONG: .*`--folder`", line)


@pytest.mark.parametrize(("name", "usual"), [("cart", 50_051), ("cart-internal", 11_051), ("control-room", 8090)])
async def test_up_reports_which_port_of_which_service_is_in_use(tmp_path: Path, name: str, usual: int) -> None:
    with _reserved_offset() as offset, socket.socket() as taken:
        port = usual + offset
        taken.bind((HOST, port))
        taken.listen()
        line = await refusal_of("up", "--port-offset", str(offset), "--folder", str(tmp_path))
    assert line.startswith(f"PORT_IN_USE: {name}: port {port} is in use by another program; try ")


@contextmanager
def _reserved_offset() -> Iterator[int]:
    """Yield an offset of which no outgoing connection can have a port, and other tests' shops take none."""
    ports = [*default_ports(discover()).values(), CONTROL_ROOM_PORT]
    for offset in range(11_000, MAX_PORT_OFFSET + 1, PORT_STEP):
        with ExitStack() as locks:
            try:
                for port in ports:
                    lock = locks.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                    lock.bind((HOST, port + offset))
                    require_free(port + offset, "")
            except (OSError, PortInUse):
                continue
            yield offset
            return
    raise AssertionError("no free offset")


def test_the_demo_shows_an_order_its_confirmation_and_trace_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    demo = subprocess.run([sys.executable, "-m", "shop_cli", "demo"], capture_output=True, text=True, check=False)
    text = demo.stdout
    assert demo.returncode == 0, text
    assert "Subject: " in text.partition("\nConfirmation\n")[2]
    assert re.search(r"total +[0-9.]+ EUR", text)
    trace = text.partition("\nTrace\n")[2]
    assert "make up" in text.splitlines()[-5]
    for name in ORDER_SERVICES:
        assert re.search(rf"─ {name} [\w.]+/\w+ +[0-9.]+ ms", trace), name
    assert list(tmp_path.iterdir()) == []


async def test_an_interrupted_demo_stops_everything_without_an_error(tmp_path: Path) -> None:
    async with command("demo", "--folder", str(tmp_path)) as process:
        assert process.stdout
        while b"starting" not in await process.stdout.readline():
            pass
        services = children(process.pid)
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    assert process.returncode == 130
    assert services
    assert running(services) == set()
    assert "Error" not in output.decode()
