"""A shop of real processes for each test process, put in order again before each test that uses it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shop_testkit.scenario import Scene, scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the shop's processes runs on the loop that started them."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Two checkouts on one SQLite file."""
    async with scene(tmp_path_factory.mktemp("sqlite"), "sqlite") as started:
        yield started


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Two checkouts on one PostgreSQL database."""
    async with scene(tmp_path_factory.mktemp("postgres"), "postgres") as started:
        yield started
