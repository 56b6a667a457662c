"""A semaphore for which a bounded number of requests wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from employee_api.users.errors import TooManyPasswords


class BoundedSemaphore:
    """Admits `slots` users at a time, first come, first served; at most `waiting` others wait."""

    def __init__(self, slots: int, waiting: int) -> None:
        self._semaphore = asyncio.Semaphore(slots)
        self._capacity = slots + waiting
        self.users = 0

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and occupy it. Raises TooManyPasswords if too many wait."""
        if self.users >= self._capacity:
            raise TooManyPasswords
        self.users += 1
        try:
            async with self._semaphore:
                yield
        finally:
            self.users -= 1
