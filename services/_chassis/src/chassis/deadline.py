import asyncio
from contextvars import ContextVar

# The deadline of the call being served, in event loop time. None in background work, because no caller waits for it.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds left until the deadline (negative once it has passed), or None if there is none."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()
