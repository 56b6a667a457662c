"""Tests of what only the memory store has: a clock and a maximum size."""

import pytest

from cart_service import store as module
from cart_service.domain import KEY_TTL_SECONDS, Addition
from cart_service.store import MemoryCartStore
from shop_kit.clock import Clock


@pytest.fixture
def store(clock: Clock) -> MemoryCartStore:
    return MemoryCartStore(ttl_seconds=10, clock=clock)


async def test_a_change_restarts_the_lifetime_of_a_cart_and_reading_does_not_and_then_a_new_cart_begins(
    store: MemoryCartStore, clock: Clock
) -> None:
    for _ in range(2):
        await store.add(Addition("ada", "pan", 1))
        clock.seconds += 9
    assert (await store.read("ada")).lines
    clock.seconds += 1
    assert not (await store.read("ada")).lines
    await store.add(Addition("ada", "tent", 1))
    assert [line.product_id for line in (await store.read("ada")).lines] == ["tent"]


async def test_a_key_expires(store: MemoryCartStore, clock: Clock) -> None:
    await store.add(Addition("ada", "pan", 1, "k"))
    clock.seconds += KEY_TTL_SECONDS
    await store.add(Addition("ada", "pan", 1, "k"))
    assert (await store.read("ada")).lines


async def test_expired_carts_use_no_memory(store: MemoryCartStore, clock: Clock) -> None:
    for number in range(100):
        await store.add(Addition(f"user-{number}", "pan", 1))
    clock.seconds += 10
    await store.add(Addition("ada", "pan", 1))
    assert len(store._carts._entries) == 1


async def test_the_least_recently_changed_cart_is_evicted(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(module, "MAX_CARTS", 2)
    store = MemoryCartStore(ttl_seconds=10, clock=clock)
    for user_id in ("ada", "bob", "ada", "eve"):
        await store.add(Addition(user_id, "pan", 1))
    assert [bool((await store.read(user_id)).lines) for user_id in ("ada", "bob", "eve")] == [True, False, True]


async def test_the_oldest_keys_are_evicted(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(module, "MAX_KEYS", 10)
    store = MemoryCartStore(ttl_seconds=10, clock=clock)
    for number in range(100):
        await store.add(Addition("ada", "pan", 1, f"k{number}"))
    assert len(store._keys._entries) == 10
