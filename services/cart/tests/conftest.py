from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

import pytest

from cart_service.domain import CartStore
from cart_service.store import MemoryCartStore
from cart_service.valkey import open_valkey_store

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]

# Long enough for a thousand concurrent additions on a slow machine.
TIMEOUT_SECONDS = 60


def open_memory(ttl_seconds: float = 3600) -> AbstractAsyncContextManager[CartStore]:
    return nullcontext(MemoryCartStore(ttl_seconds))


def open_valkey(url: str, ttl_seconds: float = 3600) -> AbstractAsyncContextManager[CartStore]:
    return open_valkey_store(url, ttl_seconds, timeout_seconds=TIMEOUT_SECONDS)


@pytest.fixture(params=["memory", "valkey"])
def open_store(request: pytest.FixtureRequest) -> OpenStore:
    """Opens each kind of store in turn, empty: one suite tests them all."""
    if request.param == "memory":
        return open_memory
    return partial(open_valkey, request.getfixturevalue("empty_valkey_url"))


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[CartStore]:
    async with open_store() as opened:
        yield opened
