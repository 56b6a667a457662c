"""The deadline and the metadata of the call being served, and the record of a call, served or made."""

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc
from opentelemetry.trace import Span, StatusCode

from chassis.telemetry import semconv
from chassis.telemetry.metrics import Attributes, Histogram
from chassis.values.fields import parse_idempotency_key

ServicerContext = grpc.aio.ServicerContext[Any, Any]

# On the event loop's clock; None in background work, which no caller waits for.
deadline: ContextVar[float | None] = ContextVar("deadline", default=None)


def remaining_seconds() -> float | None:
    """Return the seconds until the deadline of the call being served, negative once it has passed; None without one."""
    expires_at = deadline.get()
    return None if expires_at is None else expires_at - asyncio.get_running_loop().time()


def metadata_value(context: ServicerContext, name: str) -> str | None:
    """Return the first metadata value of this name, such as the `if-match`; None when the caller sent none."""
    return next((str(value) for key, value in context.invocation_metadata() or () if key == name), None)


def idempotency_key(context: ServicerContext) -> str | None:
    """Return the call's `idempotency-key`; None when the caller sent none. Raises InvalidArgument."""
    given = metadata_value(context, "idempotency-key")
    return None if given is None else parse_idempotency_key(given)


def record_call(
    span: Span, durations: Histogram, attributes: Attributes, code: str, seconds: float, *, failed: bool
) -> None:
    """End the span of a call, if there is one, and record the duration; both have an error type if the call failed."""
    attributes = (*attributes, (semconv.RPC_STATUS, code))
    span.set_attribute(semconv.RPC_STATUS, code)
    if failed:
        attributes = (*attributes, (semconv.ERROR_TYPE, code))
        span.set_attribute(semconv.ERROR_TYPE, code)
        span.set_status(StatusCode.ERROR)
    span.end()
    durations.record(seconds, attributes, span.get_span_context())
