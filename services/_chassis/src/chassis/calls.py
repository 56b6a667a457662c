"""What the call being served brings along: its metadata, and a deadline that no call made on its behalf may outlive."""

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc

# On the event loop's clock; none where nobody waits, as in background work.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Seconds until the deadline of the call being served, negative when it passed; None when there is none."""
    at = deadline.get()
    return None if at is None else at - asyncio.get_running_loop().time()


def metadata_value(context: grpc.aio.ServicerContext[Any, Any], name: str) -> str | None:
    """Text that the caller sent beside the request, such as its `idempotency-key`: the first of several."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return str(value)
    return None
