"""One shop of real processes per database and test process; each test configures it before use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shop_lab.world.fault_testbed import FaultTestbed, fault_testbed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all async tests of this folder on the event loop that starts the shop's processes."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_testbed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTestbed]:
    """Two checkouts on one SQLite file."""
    async with fault_testbed(tmp_path_factory.mktemp("sqlite"), "sqlite") as testbed:
        yield testbed


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres_testbed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultTestbed]:
    """Two checkouts on one PostgreSQL database."""
    async with fault_testbed(tmp_path_factory.mktemp("postgres"), "postgres") as testbed:
        yield testbed


@pytest.fixture
def testbed(sqlite_testbed: FaultTestbed) -> FaultTestbed:
    return sqlite_testbed
