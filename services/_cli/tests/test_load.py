import asyncio
import json
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

import pytest

from shop_kit.fake_storefront import FakeStorefront, serving
from shop_kit.signals import interruptible
from shop_kit.waiting import wait_until


@pytest.fixture
async def shop() -> AsyncIterator[FakeStorefront]:
    async with serving(FakeStorefront()) as storefront:
        yield storefront


async def start(*arguments: str) -> Process:
    command = interruptible("-m", "shop_cli", "load", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)


async def test_a_run_prints_figures_and_a_summary(shop: FakeStorefront) -> None:
    process = await start("--url", shop.url, "--rate", "10", "--duration", "3")
    output, errors = await process.communicate()
    assert process.returncode == 0
    assert "sessions/s" in errors.decode()
    assert ["GET /" in output.decode(), "sessions in 3." in output.decode()] == [True, True]


async def test_the_summary_is_an_object_with_json(shop: FakeStorefront) -> None:
    process = await start("--url", shop.url, "--rate", "10", "--duration", "1", "--seed", "s", "--json")
    output, _ = await process.communicate()
    summary = json.loads(output)
    assert summary["sessions"] > 0
    assert summary["requests"] == sum(page["requests"] for page in summary["pages"])


async def test_errors_have_status_1_and_are_listed_by_page_and_reason(shop: FakeStorefront) -> None:
    shop.broken = "/"
    process = await start("--url", shop.url, "--rate", "10", "--duration", "1")
    output, _ = await process.communicate()
    (line,) = (line for line in output.decode().splitlines() if "HTTP 503" in line)
    assert (process.returncode, line.split()[:4]) == (1, ["GET", "/", "HTTP", "503"])


async def test_ctrl_c_ends_a_run_without_a_duration_with_its_summary(shop: FakeStorefront) -> None:
    process = await start("--url", shop.url, "--rate", "10")
    await wait_until(lambda: shop.arrived)
    process.send_signal(signal.SIGINT)
    output, _ = await process.communicate()
    assert process.returncode == 0
    assert re.search(rb"\d sessions? in", output)
