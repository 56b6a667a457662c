"""The deadline of the call being served."""

import asyncio
from contextvars import ContextVar

# On the event loop's clock; None in background work, which no caller waits for.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds left until the deadline, negative once it has passed; None without a deadline."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()
