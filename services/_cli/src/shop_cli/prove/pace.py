"""Keeps customers and faults together: no order runs far ahead of the faults that are meant for its time."""

import asyncio
from collections.abc import Callable


class Pace:
    """Counts finished orders, and holds orders back until the faults before them have begun.

    Args:
        on_change: called whenever the count changes.
    """

    def __init__(self, on_change: Callable[[int], None]) -> None:
        self.finished = 0
        self._limit = 0
        self._on_change = on_change
        self._changed = asyncio.Condition()

    async def finish(self) -> None:
        """One order more is finished."""
        async with self._changed:
            self.finished += 1
            self._changed.notify_all()
        self._on_change(self.finished)

    async def allow(self, limit: int) -> None:
        """Let orders with a number below the limit begin."""
        async with self._changed:
            self._limit = max(limit, self._limit)
            self._changed.notify_all()

    async def wait_for_turn(self, number: int) -> None:
        """Wait until the order of this number may begin."""
        async with self._changed:
            await self._changed.wait_for(lambda: number < self._limit)

    async def wait_for_finished(self, count: int) -> None:
        """Wait until so many orders are finished."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.finished >= count)
