"""Wait for what other processes do in their own time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, overload

T = TypeVar("T")

_POLL_SECONDS = 0.02


@overload
async def wait_until(condition: Callable[[], Awaitable[T]], timeout_seconds: float = 60) -> T: ...
@overload
async def wait_until(condition: Callable[[], T], timeout_seconds: float = 60) -> T: ...
async def wait_until(condition: Callable[[], T | Awaitable[T]], timeout_seconds: float = 60) -> T:
    """Call the condition repeatedly and return its first true value. Raise TimeoutError."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            value = condition()
            if result := await value if isinstance(value, Awaitable) else value:
                return result
            await asyncio.sleep(_POLL_SECONDS)
