import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from chassis.sql import group_commit
from chassis.sql.group_commit import GroupCommit


class Disk:
    """Doubles numbers, one flush at a time. Waits while `free` is not set; a negative number fails the flush."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.threads: list[str] = []
        self.is_locked = False
        self.reached = threading.Event()
        self.free = threading.Event()
        self.free.set()

    def flush(self, numbers: Sequence[int]) -> list[int]:
        self.reached.set()
        self.free.wait()
        self.batches.append(list(numbers))
        self.threads.append(threading.current_thread().name)
        if min(numbers) < 0:
            raise OSError("flush failed")
        return [2 * number for number in numbers]

    def flush_at_once(self, numbers: Sequence[int]) -> list[int]:
        if self.is_locked:
            raise BlockingIOError
        return self.flush(numbers)


async def test_each_caller_gets_the_result_of_its_own_work() -> None:
    commits = GroupCommit(Disk().flush)
    assert await asyncio.gather(*(commits.run(number) for number in range(50))) == [2 * n for n in range(50)]
    await commits.close()


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


async def test_a_failed_flush_fails_only_the_work_of_its_batch() -> None:
    commits = GroupCommit(Disk().flush)
    failed = await asyncio.gather(commits.run(-1), commits.run(1), return_exceptions=True)
    assert [type(error) for error in failed] == [OSError, OSError]
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


@pytest.mark.parametrize("count", [1, 500])
async def test_work_is_done_in_order_of_arrival(count: int) -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush)
    await asyncio.gather(*(commits.run(number) for number in range(count)))
    await commits.close()
    assert [number for batch in disk.batches for number in batch] == list(range(count))


async def test_brief_work_alone_is_done_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "QUICK_SECONDS", float("inf"))  # however busy the machine is
    disk = Disk()
    commits = GroupCommit(disk.flush, at_once=disk.flush_at_once)
    assert [await commits.run(number, brief=True) for number in (1, 2)] == [2, 4]
    await asyncio.gather(commits.run(3, brief=True), commits.run(4, brief=True))
    await commits.close()
    assert disk.batches == [[1], [2], [3, 4]]
    assert disk.threads == ["MainThread", "MainThread", "commit"]


async def test_work_is_done_on_the_thread_after_a_slow_flush_until_one_is_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "QUICK_SECONDS", 0.2)

    class SlowDisk(Disk):
        def flush(self, numbers: Sequence[int]) -> list[int]:
            if numbers[0] < 3:
                time.sleep(0.25)
            return super().flush(numbers)

    disk = SlowDisk()
    commits = GroupCommit(disk.flush, at_once=disk.flush_at_once)
    for number in (1, 2, 3, 4):
        await commits.run(number, brief=True)
    await commits.close()
    assert disk.threads == ["MainThread", "commit", "commit", "MainThread"]


async def test_work_that_is_not_brief_is_done_on_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "QUICK_SECONDS", float("inf"))
    disk = Disk()
    commits = GroupCommit(disk.flush, at_once=disk.flush_at_once)
    assert await commits.run(1) == 2
    await commits.close()
    assert disk.threads == ["commit"]


async def test_work_that_would_wait_for_a_lock_is_done_on_the_thread() -> None:
    disk = Disk()
    disk.is_locked = True
    commits = GroupCommit(disk.flush, at_once=disk.flush_at_once)
    assert await commits.run(1, brief=True) == 2
    await commits.close()
    assert disk.threads == ["commit"]


async def test_a_failure_on_the_event_loop_reaches_the_caller() -> None:
    disk = Disk()
    commits = GroupCommit(disk.flush, at_once=disk.flush_at_once)
    with pytest.raises(OSError, match="flush failed"):
        await commits.run(-1, brief=True)
    assert await commits.run(3) == 6
    await commits.close()
