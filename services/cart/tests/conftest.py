from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import pytest

from cart_service.domain import CartStore
from cart_service.sql import open_sql_store
from cart_service.store import MemoryCartStore
from cart_service.valkey import open_valkey_store

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]


@pytest.fixture(params=["memory", "valkey", "sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    """Opens an empty store of each kind in turn, so that one suite tests all kinds."""
    if request.param == "memory":
        return lambda: nullcontext(MemoryCartStore(3600))
    if request.param == "valkey":
        url = request.getfixturevalue("empty_valkey_url")
        # Long enough for many concurrent calls on a slow machine.
        return lambda: open_valkey_store(url, 3600, timeout_seconds=60)
    url = request.getfixturevalue(f"{request.param}_url")
    return lambda: open_sql_store(url, 3600)


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[CartStore]:
    async with open_store() as opened:
        yield opened
