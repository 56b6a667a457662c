"""The deadline of the call being served: no call made on its behalf may outlive it."""

import asyncio
from contextvars import ContextVar

# On the event loop's clock; none where nobody waits, as in background work.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Seconds until the deadline of the call being served, negative when it passed; None when there is none."""
    at = deadline.get()
    return None if at is None else at - asyncio.get_running_loop().time()
