"""Work in the background, which no error ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from chassis.errors import Unavailable
from chassis.lazy_log import log

_RESTART_SECONDS = 1.0

Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def in_background(*loops: Loop) -> AsyncIterator[None]:
    """Run loops until the context is left. One that fails starts again: no error in the background ends a process."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(repeat(loop, _RESTART_SECONDS, "background work failed")) for loop in loops]
        yield
        for task in running:
            task.cancel()


async def repeat(work: Callable[[], Awaitable[object]], seconds: float, event: str, **details: str) -> None:
    """Do the work now and with this pause, until cancelled. Log its errors under this event."""
    while True:
        await log_errors(work(), event, **details)
        await asyncio.sleep(seconds)


async def log_errors(work: Awaitable[object], event: str, **details: str) -> bool:
    """Await one unit of work; return whether it succeeded. Log any error, so that the loop continues with the next."""
    try:
        await work
    except Unavailable:
        log.warning(event, **details)
    except Exception:  # noqa: BLE001 - logged
        log.exception(event, **details)
    else:
        return True
    return False
