import asyncio
from collections.abc import Sequence

import pytest

from chassis.errors import Unavailable
from chassis.sql import queue_head
from chassis.sql.database import StatementRejected
from chassis.sql.queue_head import QueueHead


class Queue:
    """A queue of numbered rows. The database rejects any transaction that includes a row in `refused`."""

    def __init__(self, count: int, *refused: int) -> None:
        self.rows = list(range(count))
        self.refused = set(refused)
        self.rejections = 0
        self.away = False

    async def take(self, limit: int, passed: int) -> Sequence[int]:
        if self.away:
            raise Unavailable("no server")
        found = self.rows[passed : passed + limit]
        if self.refused & set(found):
            self.rejections += 1
            raise Unavailable("rejected") from StatementRejected("one row")
        self.rows = [row for row in self.rows if row not in found]
        return found


async def test_rows_that_cannot_be_written_delay_no_other() -> None:
    head, queue = QueueHead(), Queue(10, 0, 1, 5)
    assert await head.take(queue.take, 4) == [2, 3, 4, 6]
    assert await head.take(queue.take, 4) == [7, 8, 9]
    head, queue = QueueHead(), Queue(60, *range(50))  # one call gives up after 20 rejected rows
    taken = [row for _ in range(4) for row in await head.take(queue.take, 20)]
    assert taken == list(range(50, 60))


async def test_they_are_tried_again_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now, raising=False)
    head, queue, tried_at = QueueHead(), Queue(1, 0), list[float]()
    while now < 300:
        before = queue.rejections
        await head.take(queue.take, 1)
        tried_at += [now] if queue.rejections > before else []
        now += 1.0
    assert tried_at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]
    queue.refused.clear()
    now += queue_head._LONGEST_PAUSE_SECONDS
    assert await head.take(queue.take, 1) == [0]


async def test_an_outage_is_raised_unless_rows_were_taken_before() -> None:
    head, queue = QueueHead(), Queue(5, 2)
    assert await head.take(queue.take, 2) == [0, 1]
    queue.away = True
    with pytest.raises(Unavailable):
        await head.take(queue.take, 2)
