"""Background loops that survive errors, and results that several callers can wait for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from chassis.errors import Unavailable
from chassis.lazy_log import log

_RESTART_SECONDS = 1.0

T = TypeVar("T")
Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def in_background(*loops: Loop) -> AsyncIterator[None]:
    """Run loops until the context exits. Restart a loop that fails, so that its error does not end the process."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(repeat(loop, _RESTART_SECONDS, "background work failed")) for loop in loops]
        yield
        for task in running:
            task.cancel()


async def repeat(work: Callable[[], Awaitable[object]], seconds: float, event: str, **details: str) -> None:
    """Do the work repeatedly, pausing for `seconds` in between, until cancelled. Log its errors as `event`."""
    while True:
        await log_errors(work(), event, **details)
        await asyncio.sleep(seconds)


async def log_errors(work: Awaitable[object], event: str, **details: str) -> bool:
    """Await some work and return whether it succeeded. Log its error if it fails."""
    try:
        await work
    except Unavailable:
        log.warning(event, **details)
    except Exception:  # noqa: BLE001 - logged
        log.exception(event, **details)
    else:
        return True
    return False


async def shared_result(running: "asyncio.Future[T]") -> T:
    """Wait for work and return its result. Cancelling this caller doesn't cancel the work."""
    # Don't use asyncio.shield: since Python 3.14, it reports errors that no caller is waiting for.
    running.add_done_callback(mark_retrieved)
    await asyncio.wait([running])
    return running.result()


def mark_retrieved(running: "asyncio.Future[Any]") -> None:
    """Keep asyncio from reporting an error that no caller is waiting for."""
    if not running.cancelled():
        running.exception()
