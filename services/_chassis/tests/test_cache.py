import asyncio
import gc
from collections import defaultdict

import pytest

from chassis.cache import RETRY_SECONDS, TtlCache
from chassis.deadline import deadline
from shop_kit.clock import Clock
from shop_kit.waiting import wait_until


class Source:
    """Fetches a key as the key plus the number of its fetches so far. Waits while `gate` is closed."""

    def __init__(self) -> None:
        self.fetches: dict[str, int] = defaultdict(int)
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.deadlines: list[float | None] = []

    async def fetch(self, key: str) -> str:
        self.fetches[key] += 1
        self.deadlines.append(deadline.get())
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return f"{key}{self.fetches[key]}"


@pytest.fixture
def source() -> Source:
    return Source()


async def test_a_fetched_value_is_cached_until_it_expires(source: Source, clock: Clock) -> None:
    cache = TtlCache(source.fetch, 10, clock=clock)
    assert [await cache.get("a"), await cache.get("b", "a", "b"), await cache.get()] == [["a1"], ["b1", "a1", "b1"], []]
    clock.seconds += 10
    assert await cache.get("a") == ["a2"]


async def refreshed(cache: TtlCache[str, str]) -> list[str]:
    """Wait for any background refresh, and return the value."""
    await cache.get("a")
    await asyncio.gather(*cache._fetches.values(), return_exceptions=True)
    return await cache.get("a")


async def test_a_stale_value_is_served_without_waiting_for_its_refresh_which_is_tried_again_after_a_pause(
    source: Source, clock: Clock
) -> None:
    cache = TtlCache(source.fetch, 10, serve_stale=True, clock=clock)
    await cache.get("a")
    clock.seconds += 10
    source.gate.clear()
    assert [await cache.get("a") for _ in range(50)] == [["a1"]] * 50
    source.error = ValueError("no")
    source.gate.set()
    assert [await refreshed(cache) for _ in range(10)] == [["a1"]] * 10
    assert source.fetches["a"] == 2
    source.error = None
    clock.seconds += RETRY_SECONDS
    assert await refreshed(cache) == ["a3"]


async def test_concurrent_callers_share_a_fetch_and_its_error_which_is_not_cached(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    source.error = ValueError("no")
    failures = await asyncio.gather(cache.get("a"), cache.get("a"), return_exceptions=True)
    assert [type(failure) for failure in failures] == [ValueError, ValueError]
    source.error = None
    assert await asyncio.gather(*(cache.get("a") for _ in range(20))) == [["a2"]] * 20


async def test_cancelling_one_caller_does_not_cancel_the_shared_fetch(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    source.gate.clear()
    cancelled, waiting = asyncio.create_task(cache.get("a")), asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    cancelled.cancel()
    source.gate.set()
    assert await waiting == ["a1"]


async def test_an_error_that_every_caller_has_left_is_not_reported(source: Source) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    source.error = ValueError("no")
    source.gate.clear()
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    left = asyncio.create_task(cache.get("a"))
    await wait_until(lambda: source.fetches["a"] == 1)
    left.cancel()
    source.gate.set()
    await asyncio.wait([left, *cache._fetches.values()])
    del left  # this task refers to the fetch
    gc.collect()
    assert reported == []


async def test_a_fetch_runs_without_the_deadline_of_its_first_caller(source: Source) -> None:
    deadline.set(asyncio.get_running_loop().time() + 1)
    await TtlCache(source.fetch, ttl_seconds=3600).get("a")
    assert source.deadlines == [None]


async def test_the_oldest_entry_is_evicted_from_a_full_cache(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chassis.cache._MAX_ENTRIES", 2)
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    for key in "abc":
        await cache.get(key)
    assert await cache.get("c", "a") == ["c1", "a2"]
