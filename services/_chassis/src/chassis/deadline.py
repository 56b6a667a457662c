"""The deadline of the call being served."""

import asyncio
from contextvars import ContextVar

# A time on the event loop's clock. None in background work, since no caller waits for it.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds until the deadline, negative if it has passed, or None if there is no deadline."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()
