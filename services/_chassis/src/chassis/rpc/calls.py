"""Reads the metadata of incoming calls, and records incoming and outgoing calls."""

from collections.abc import Mapping
from typing import Any

import grpc
from opentelemetry.trace import Span, StatusCode

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Histogram
from chassis.values.fields import parse_idempotency_key

ServicerContext = grpc.aio.ServicerContext[Any, Any]


def metadata_of(context: ServicerContext) -> dict[str, str]:
    """Return the first value of each metadata name. Use this only once per call, because it converts all metadata."""
    return {name: str(value) for name, value in [*(context.invocation_metadata() or ())][::-1]}


def idempotency_key(metadata: Mapping[str, str]) -> str | None:
    """Return the call's `idempotency-key`, or None if there is none. Raise InvalidArgument if the key is malformed."""
    given = metadata.get("idempotency-key")
    return None if given is None else parse_idempotency_key(given)


def record_call(
    span: Span, durations: Histogram, attributes: Attributes, code: str, seconds: float, *, failed: bool
) -> None:
    """End the call's span and record the call's duration, both with an error type if the call failed."""
    attributes = (*attributes, (semconv.RPC_STATUS, code))
    if code != "OK":
        span.set_attribute(semconv.RPC_STATUS, code)
    if failed:
        attributes = (*attributes, (semconv.ERROR_TYPE, code))
        span.set_attribute(semconv.ERROR_TYPE, code)
        span.set_status(StatusCode.ERROR)
    span.end()
    durations.record(seconds, attributes, span)
