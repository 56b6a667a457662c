import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from chassis.sql.group_commit import GroupCommit


class Disk:
    """Doubles numbers in each flush, waiting until `free` is set. A negative number makes the flush fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.reached = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def flush(self, batch: Sequence[int], wait_seconds: float) -> list[int]:
        if not wait_seconds and not self.free.is_set():
            raise BlockingIOError
        self.reached.set()
        self.free.wait()
        self.batches.append(list(batch))
        if min(batch) < 0:
            raise OSError("flush failed")
        return [2 * number for number in batch]


async def test_work_is_done_in_order_of_arrival_and_each_caller_gets_the_result_of_its_own() -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush)
    assert await asyncio.gather(*map(commits.run, range(500))) == [2 * number for number in range(500)]
    await commits.close()
    assert [number for batch in disk.batches for number in batch] == list(range(500))


async def test_work_that_arrives_during_a_flush_shares_the_next_one() -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush)
    disk.free.clear()
    first = asyncio.create_task(commits.run(0))
    await asyncio.to_thread(disk.reached.wait)
    others = [asyncio.create_task(commits.run(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    disk.free.set()
    await asyncio.gather(first, *others)
    await commits.close()
    assert disk.batches == [[0], [1, 2, 3]]


async def test_cancelling_a_caller_cancels_neither_its_work_nor_that_of_others() -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush)
    disk.free.clear()
    cancelled, waiting = (asyncio.create_task(commits.run(number)) for number in (1, 2))
    await asyncio.sleep(0)
    cancelled.cancel()
    disk.free.set()
    assert await waiting == 4
    await commits.close()
    assert disk.batches == [[1, 2]]


async def test_work_that_fails_a_flush_fails_no_other() -> None:
    commits = GroupCommit(Disk().flush)
    results = await asyncio.gather(commits.run(-1), commits.run(1), return_exceptions=True)
    assert [str(result) for result in results] == ["flush failed", "2"]
    assert await commits.run(3) == 6
    await commits.close()


async def test_closing_waits_for_pending_work() -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush)
    running = asyncio.create_task(commits.run(1))
    await asyncio.sleep(0)
    await commits.close()
    assert disk.batches == [[1]]
    assert await running == 2


async def test_only_a_lone_commit_after_a_quick_one_stays_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    on_event_loop: list[bool] = []

    def commit(seconds: Sequence[float], _wait_seconds: float) -> Sequence[float]:
        nonlocal now
        now += seconds[0]
        on_event_loop.append(threading.current_thread() is threading.main_thread())
        return seconds

    commits = GroupCommit(commit)
    for seconds in (0, 0.002, 0, 0):
        await commits.run(seconds)
    await asyncio.gather(commits.run(0), commits.run(0))
    await commits.close()
    assert on_event_loop == [True, True, False, True, False]
