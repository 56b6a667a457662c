import asyncio
import json
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import pytest

from shop_kit.fake_storefront import FakeStorefront, serving
from shop_kit.signals import interruptible


@pytest.fixture
async def shop() -> AsyncIterator[FakeStorefront]:
    async with serving(FakeStorefront()) as storefront:
        yield storefront


async def start(*arguments: str) -> Process:
    command = interruptible("-m", "shop_cli", "load", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


async def test_ctrl_c_ends_a_run_without_a_duration_with_its_figures_errors_and_summary(shop: FakeStorefront) -> None:
    shop.broken = "/"
    process = await start("--url", shop.url, "--rate", "10")
    assert process.stderr is not None
    while b"sessions/s" not in await process.stderr.readline() or not shop.arrived:
        assert not process.stderr.at_eof()
    process.send_signal(signal.SIGINT)
    output, _ = await process.communicate()
    (line,) = (line for line in output.decode().splitlines() if "HTTP 503" in line)
    assert (process.returncode, line.split()[:4]) == (1, ["GET", "/", "HTTP", "503"])
    assert re.search(rb"\d sessions? in \d", output)


async def test_the_summary_of_a_run_without_errors_is_an_object_with_json(
    shop: FakeStorefront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS", "2")  # `shop load` must ignore this setting and not wait for workers
    process = await start("--url", shop.url, "--rate", "10", "--duration", "1", "--seed", "s", "--json")
    output, errors = await process.communicate()
    summary = json.loads(output)
    assert (process.returncode, b"seed s" in errors, summary["errors"]) == (0, True, [])
    assert summary["requests"] == sum(page["requests"] for page in summary["pages"])
    assert summary["seconds"] >= 1
