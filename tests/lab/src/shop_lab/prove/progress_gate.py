"""Synchronize customers and faults: orders do not run far ahead of the faults that are planned between them."""

import asyncio
from collections.abc import Callable


class ProgressGate:
    """Counts finished orders, and delays the start of orders until the faults planned before them have begun.

    Args:
        on_change: called with the number of finished orders whenever it changes.
    """

    def __init__(self, on_change: Callable[[int], None]) -> None:
        self.finished = 0
        self._limit = 0
        self._on_change = on_change
        self._changed = asyncio.Condition()

    async def finish(self, count: int) -> None:
        """Count so many more finished orders."""
        async with self._changed:
            self.finished += count
            self._changed.notify_all()
        self._on_change(self.finished)

    async def open_until(self, limit: int) -> None:
        """Allow orders with a number below the limit to start."""
        async with self._changed:
            self._limit = max(limit, self._limit)
            self._changed.notify_all()

    async def wait_until_open(self, number: int) -> None:
        """Wait until the order with this number may start."""
        async with self._changed:
            await self._changed.wait_for(lambda: number < self._limit)

    async def wait_until_finished(self, count: int) -> None:
        """Wait until so many orders are finished."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.finished >= count)
