"""`shop up` and `shop demo`, run as a user runs them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from shop_cli.local.stores import data_stores
from shop_cli.local.workspace import discover
from shop_kit.databases import execute
from shop_kit.running_shop import run_shop
from shop_kit.signals import interruptible
from shop_kit.waiting import wait_until

# An order needs all services but ad and recommendation.
ORDER_SERVICES = {"cart", "product-catalog", "shipping", "currency", "payment", "email", "checkout"}


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
    return (await run_shop("order", "ada", "--key", "once", folder=folder))[0] == 0


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


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a Unix socket, unlike some of pytest's."""
    with tempfile.TemporaryDirectory(prefix="shop-", ignore_cleanup_errors=True) as name:
        yield Path(name)


async def test_up_is_alone_in_its_folder_stores_orders_in_postgres_and_stops_everything_on_ctrl_c(folder: Path) -> None:
    arguments = ("up", "--any-ports", "--postgres", "--folder", str(folder))
    telemetry = {"OTEL_BSP_SCHEDULE_DELAY": "321", "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    async with command(*arguments, **telemetry) as process:
        text = await read_until(process, f"{Path(sys.executable).with_name('shop')} order")
        started = children(process.pid)
        services = [found for pid in started if "\0INTERNAL_PORT=" in (found := environment_of(pid))]
        async with command(*arguments) as second:
            refusal, _ = await second.communicate()
        assert (await run_shop("cart", "add", "ada", "copper-kettle", folder=folder))[0] == 0
        for store in ("postgres", "valkey"):
            assert (await run_shop("kill", store, folder=folder))[0] == 0
            await read_until(process, f"{store:<16} ", "serving")
        await wait_until(partial(is_placed_in, folder))
        started |= children(process.pid)
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    assert re.search(r"The shop is ready.*http://localhost:[0-9]+/\?token=\S+", text, re.DOTALL)
    assert re.search(r"the employee API  http://localhost:[0-9]+/docs", text)
    assert second.returncode == 1
    assert re.fullmatch(r"SHOP_RUNNING: .*`\S+/shop up --folder OTHER --any-ports`\n", refusal.decode())
    assert (process.returncode, output.decode().splitlines()[-1]) == (0, "stopped")
    assert running(started) == set()
    assert "without effect, as OTEL_EXPORTER_OTLP_ENDPOINT is not set: OTEL_EXPORTER_OTLP_HEADERS\n" in text
    assert len(services) == len(discover())
    assert {"OTEL_BSP_SCHEDULE_DELAY=321" in found and "a=b" not in found for found in services} == {True}
    async with data_stores(folder) as (_, variables):  # as the next `shop up` opens them
        assert execute(variables["checkout"]["DATABASE_URL"], "SELECT user_id FROM orders") == [("ada",)]


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
