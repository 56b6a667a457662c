"""One running shop over mutual TLS, made of real processes; the tests that use it run in one worker, on its loop."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from shop_cli.local.workspace import discover
from shop_kit.running_shop import RunningShop, running_shop


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningShop]:
    """Tests may change the records of their own orders, and restart what they stop."""
    folder = tmp_path_factory.mktemp("shop")
    async with running_shop(folder, discover(), tls=True, LOG_LEVEL="debug") as started:
        yield started
