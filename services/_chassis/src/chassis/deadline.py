"""The deadline of the call being served."""

import asyncio
from contextvars import ContextVar

# In event loop time. None in background work, because no caller is waiting.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds left until the deadline (negative once it has passed), or None without a deadline."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()
