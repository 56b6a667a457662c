import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

from chassis.errors import Unavailable
from chassis.lazy_log import log

_RESTART_SECONDS = 1.0

T = TypeVar("T")
Loop: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@asynccontextmanager
async def in_background(*loops: Loop) -> AsyncIterator[None]:
    """Run the loops until the context exits. If a loop fails, log the error and restart the loop after a second."""
    running = [asyncio.create_task(repeat(loop, _RESTART_SECONDS, "background work failed")) for loop in loops]
    try:
        yield
    finally:
        await finish(running, within_seconds=0)


async def finish(tasks: Collection["asyncio.Task[Any]"], within_seconds: float) -> None:
    """Wait up to `within_seconds` for the tasks to end, then cancel any that are still running."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=within_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def repeat(work: Callable[[], Awaitable[object]], seconds: float, event: str, **details: Any) -> None:
    """Repeat the work until cancelled, pausing for `seconds` after each run. Log errors as `event`."""
    while True:
        await log_errors(work(), event, **details)
        await asyncio.sleep(seconds)


async def log_errors(
    work: Awaitable[object], event: str, *, within_seconds: float | None = None, **details: Any
) -> bool:
    """Await the work and return whether it succeeded. If it failed or took too long, log the error as `event`."""
    try:
        # Don't use wait_for: before Python 3.12, it ignores a cancellation that arrives just as the work ends.
        async with asyncio.timeout(within_seconds):
            await work
    except Unavailable:
        log.warning(event, **details)
    except Exception:  # noqa: BLE001 - log.exception reports the error
        log.exception(event, **details)
    else:
        return True
    return False


async def shared_result(running: "asyncio.Future[T]") -> T:
    """Return a future's result. Cancelling this caller doesn't cancel the future."""
    # Don't use asyncio.shield: since Python 3.14, it logs the future's error if the caller was cancelled.
    running.add_done_callback(mark_retrieved)
    await asyncio.wait([running])
    return running.result()


def mark_retrieved(running: "asyncio.Future[Any]") -> None:
    """Keep asyncio from logging the future's error when no caller retrieves it."""
    if not running.cancelled():
        running.exception()
