import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chassis.errors import Unavailable
from chassis.sql.database import is_rejected
from chassis.values.backoff import backoff_seconds

RowT = TypeVar("RowT")

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_REJECTIONS = 20  # `take` stops after this many rejections, and the next call continues from there


@dataclass
class QueueHead:
    """Takes rows, such as due orders, from the head of a queue in index order.

    If the database rejects a row's updates, the row stays at the head of the queue, and every transaction that includes
    the row fails. So this process counts such rows, skips them, and retries them at increasing intervals.
    """

    _skipped: int = 0
    _failures: int = 0
    _retry_at: float = 0.0

    async def take(self, take: Callable[[int, int], Awaitable[Sequence[RowT]]], limit: int) -> list[RowT]:
        """Take and return up to `limit` rows. Raise Unavailable if the database fails before any row is taken.

        `take(limit, skipped)` runs a transaction that skips the first `skipped` rows, removes up to `limit` of the
        following rows from the queue and returns them.
        """
        now = asyncio.get_running_loop().time()
        retries = now >= self._retry_at
        if retries:
            self._skipped = 0
        taken: list[RowT] = []
        size, rejections = limit, 0
        while len(taken) < limit and rejections < _REJECTIONS:
            try:
                found = await take(min(size, limit - len(taken)), self._skipped)
            except Unavailable as error:
                if not is_rejected(error):
                    if taken:
                        break
                    raise
                rejections += 1
                self._skipped += size == 1
                size = 1
            else:
                taken += found
                if len(found) < size:
                    break
        if retries:
            self._failures = self._failures + 1 if self._skipped else 0
            self._retry_at = now + backoff_seconds(self._failures, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        return taken
