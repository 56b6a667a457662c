"""One running shop per test process, made of real processes; tests that use it share its event loop."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shop_cli.local.processes import Process
from shop_kit.loops import share_loop
from shop_kit.running_shop import RunningShop, running_process, running_shop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    share_loop(items, Path(__file__).parent)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningShop]:
    async with running_shop(tmp_path_factory.mktemp("shop")) as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def storefront(shop: RunningShop) -> AsyncIterator[Process]:
    async with running_process("storefront", shop.folder, shop.addresses) as started:
        yield started
