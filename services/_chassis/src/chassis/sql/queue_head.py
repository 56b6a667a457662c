"""Takes rows from the head of a queue, past those that the database refuses to write."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from chassis.errors import Unavailable
from chassis.sql.database import is_rejected
from chassis.values.backoff import backoff_seconds

RowT = TypeVar("RowT")

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
# How many rejections one call puts up with: the next one continues behind them.
_REJECTIONS = 20


class QueueHead:
    """Takes rows in the order of an index, such as orders that are due.

    A row that cannot be written cannot record a delay of its own either: it stays at the head of its queue, and would
    fail every transaction that it is a part of. So this process remembers how many such rows there are, passes over
    them, and tries them again at growing intervals.
    """

    def __init__(self) -> None:
        self._passed = 0
        self._failures = 0
        self._retry_at = 0.0

    async def take(self, take: Callable[[int, int], Awaitable[Sequence[RowT]]], limit: int) -> list[RowT]:
        """Return up to `limit` rows that `take` has written; raises Unavailable.

        `take(limit, passed)` takes rows from behind the first `passed` ones, in one transaction; what it has returned
        must not be in the queue any more.
        """
        now = asyncio.get_running_loop().time()
        retries = now >= self._retry_at
        if retries:
            self._passed = 0
        taken: list[RowT] = []
        size, rejections = limit, 0
        while len(taken) < limit and rejections < _REJECTIONS:
            try:
                found = await take(min(size, limit - len(taken)), self._passed)
            except Unavailable as error:
                if not is_rejected(error):
                    if taken:
                        break
                    raise
                rejections += 1
                self._passed += size == 1
                size = 1
            else:
                taken += found
                if len(found) < size:
                    break
        if retries:
            self._failures = self._failures + 1 if self._passed else 0
            self._retry_at = now + backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        return taken
