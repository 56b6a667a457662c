import asyncio
from collections import defaultdict

import pytest

from chassis import calls
from chassis.cache import TtlCache


class Source:
    """Answers with how often a key was asked for, once its gate is open."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = defaultdict(int)
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.deadlines: list[float | None] = []

    async def fetch(self, key: str) -> str:
        self.asked[key] += 1
        self.deadlines.append(calls.deadline.get())
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return f"{key}{self.asked[key]}"


@pytest.fixture
def source() -> Source:
    return Source()


async def test_an_answer_is_kept(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    assert [await cache.get("a"), await cache.get("b", "a")] == [["a1"], ["b1", "a1"]]


async def test_an_old_answer_is_fetched_anew(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=0)
    assert [await cache.get("a"), await cache.get("a")] == [["a1"], ["a2"]]


async def test_the_same_key_twice_is_fetched_once(source: Source) -> None:
    assert await TtlCache(source.fetch, ttl_seconds=3600).get("a", "b", "a") == ["a1", "b1", "a1"]


async def test_nothing_is_fetched_for_nothing(source: Source) -> None:
    assert await TtlCache(source.fetch, ttl_seconds=3600).get() == []


async def test_callers_at_once_share_a_fetch(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    assert await asyncio.gather(*(cache.get("a") for _ in range(20))) == [["a1"]] * 20


async def test_a_failure_reaches_all_who_wait_and_is_not_kept(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    source.error = ValueError("no")
    failures = await asyncio.gather(cache.get("a"), cache.get("a"), return_exceptions=True)
    assert [type(failure) for failure in failures] == [ValueError, ValueError]
    source.error = None
    assert await cache.get("a") == ["a2"]


async def test_a_caller_who_leaves_does_not_take_the_fetch_along(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600)
    source.gate.clear()
    leaving, staying = asyncio.create_task(cache.get("a")), asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    leaving.cancel()
    source.gate.set()
    assert await staying == ["a1"]


async def test_a_fetch_does_not_have_the_deadline_of_its_first_caller(source: Source) -> None:
    calls.deadline.set(asyncio.get_running_loop().time() + 1)
    await TtlCache(source.fetch, ttl_seconds=3600).get("a")
    assert source.deadlines == [None]


async def test_the_oldest_answer_makes_room(source: Source) -> None:
    cache = TtlCache(source.fetch, ttl_seconds=3600, max_entries=2)
    for key in "abc":
        await cache.get(key)
    assert await cache.get("c", "a") == ["c1", "a2"]
