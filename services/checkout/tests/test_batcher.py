import asyncio
import time
from collections.abc import Callable

import pytest

from checkout_service.peers.batcher import Batch, Batcher
from shop_kit.waiting import wait_until


class Work:
    """Doubles numbers. A batch is processed while `free` is set."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.free = asyncio.Event()
        self.free.set()

    def begin(self, batch: Batch[int, int]) -> "asyncio.Task[None]":
        self.batches.append([waiting.item for waiting in batch])
        return asyncio.create_task(self._run(batch))

    async def _run(self, batch: Batch[int, int]) -> None:
        await self.free.wait()
        for waiting in batch:
            if waiting.item < 0:
                waiting.result.set_exception(ValueError(waiting.item))
            else:
                waiting.result.set_result(2 * waiting.item)


Add = Callable[[int], asyncio.Future[int]]


def eager(work: Work, *, delay_seconds: float = 60) -> Add:
    return Batcher(work.begin, max_items=3, delay_seconds=delay_seconds, eager=True).add


async def test_items_of_the_same_moment_are_batches_of_limited_size() -> None:
    work = Work()
    add: Add = Batcher(work.begin, max_items=3, delay_seconds=0.01).add
    assert await asyncio.gather(*map(add, range(5))) == [0, 2, 4, 6, 8]
    assert work.batches == [[0, 1, 2], [3, 4]]


async def test_an_item_waits_for_others_as_long_as_it_should() -> None:
    started = time.monotonic()
    await Batcher(Work().begin, max_items=3, delay_seconds=0.05).add(1)
    assert 0.04 < time.monotonic() - started < 2


async def test_an_eager_batcher_begins_at_once_and_then_after_each_batch() -> None:
    work = Work()
    add = eager(work)
    assert await asyncio.gather(*map(add, range(3))) == [0, 2, 4]
    assert await add(3) == 6
    assert work.batches == [[0], [1, 2], [3]]


async def test_a_batch_that_takes_long_delays_the_next_by_no_more_than_the_delay() -> None:
    work = Work()
    add = eager(work, delay_seconds=0.01)
    work.free.clear()
    adding = [add(number) for number in range(2)]
    await wait_until(lambda: work.batches == [[0], [1]])
    work.free.set()
    assert await asyncio.gather(*adding) == [0, 2]


async def test_an_error_reaches_its_own_caller() -> None:
    adding = map(Batcher(Work().begin, max_items=3, delay_seconds=0).add, (1, -1))
    first, second = await asyncio.gather(*adding, return_exceptions=True)
    assert (first, repr(second)) == (2, "ValueError(-1)")


async def test_an_item_whose_caller_is_cancelled_before_it_begins_is_left_out() -> None:
    work = Work()
    add: Add = Batcher(work.begin, max_items=3, delay_seconds=0.01).add
    cancelled, kept = add(1), add(2)
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await kept == 4
    assert work.batches == [[2]]
