from collections.abc import AsyncIterator

import pytest

from shop_kit.employee_api import Api, Clock, StartApi, api_starter


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """A database without rows: SQLite, or each kind in turn for tests that are marked `on_each_database`."""
    return str(request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_url"))


@pytest.fixture
def start_api(database_url: str, clock: Clock) -> StartApi:
    """Starts an API with the given settings."""
    return api_starter(database_url, clock)


@pytest.fixture
async def api(start_api: StartApi) -> AsyncIterator[Api]:
    """An API with default settings."""
    async with start_api() as running:
        yield running
