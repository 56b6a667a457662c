"""The call being served: its deadline, which bounds every outgoing call, and its metadata."""

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc

# On the event loop's clock; None in background work, which no caller waits for.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds until the deadline of the call being served, negative once it has passed; None without one."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()


def metadata_value(context: grpc.aio.ServicerContext[Any, Any], name: str) -> str | None:
    """Return the first metadata value of this name, such as the `idempotency-key`; None when the caller sent none."""
    for key, value in context.invocation_metadata() or ():
        if key == name:
            return str(value)
    return None
