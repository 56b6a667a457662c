"""Trace context and baggage of calls between processes, as the W3C's headers `traceparent`, `tracestate`, `baggage`.

Baggage is metadata of a whole trace, such as the session whose page began it. It passes through every service; the
members named in BAGGAGE_ATTRIBUTES also become attributes of each span.
"""

import logging
import re
from collections.abc import Mapping

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis import semconv

HEADERS = frozenset({"traceparent", "tracestate", "baggage"})
BAGGAGE_ATTRIBUTES = (semconv.SESSION_ID, semconv.SYNTHETIC_REQUEST)
# gRPC rejects calls with more than 8 KiB of metadata: longer baggage of one client must not fail its calls.
_MAX_BAGGAGE_CHARACTERS = 2048

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_BAGGAGE = W3CBaggagePropagator()
# It would log parts of malformed headers, which may contain anything.
logging.getLogger("opentelemetry.baggage.propagation").setLevel(logging.ERROR)


def extract(headers: Mapping[str, str]) -> Context:
    """Return the context that the headers describe. Malformed headers and overlong baggage are ignored."""
    context = _extract_trace_context(headers)
    if 0 < len(headers.get("baggage", "")) <= _MAX_BAGGAGE_CHARACTERS:
        return _BAGGAGE.extract(headers, context)
    return context


def _extract_trace_context(headers: Mapping[str, str]) -> Context:
    match = None if "tracestate" in headers else _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if match is None:
        return _TRACE_CONTEXT.extract(headers, Context())
    # What the propagator does for the usual header: in 2.9 µs instead of 4.5.
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    parent = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return trace.set_span_in_context(NonRecordingSpan(parent), Context()) if parent.is_valid else Context()


def inject(span: Span) -> dict[str, str]:
    """Return the headers of a call whose client span is `span`, with the baggage of the current context."""
    headers: dict[str, str] = {}
    sent = span.get_span_context()
    if sent.is_valid:  # formatted here: 1.7 µs instead of the propagator's 2.6
        headers["traceparent"] = f"00-{sent.trace_id:032x}-{sent.span_id:016x}-{sent.trace_flags:02x}"
        if sent.trace_state:
            headers["tracestate"] = sent.trace_state.to_header()
    if baggage.get_all():  # cheaper than an injection of nothing
        _BAGGAGE.inject(headers)
    return headers


def add_baggage(name: str, value: str) -> None:
    """Add a member to the baggage of the current context, and to the current span if it is one of the attributes."""
    otel_context.attach(baggage.set_baggage(name, value))
    if name in BAGGAGE_ATTRIBUTES:
        trace.get_current_span().set_attribute(name, value)


def baggage_attributes(context: Context | None = None) -> dict[str, str]:
    """Return the span attributes from the baggage of a context, by default the current one."""
    members = baggage.get_all(context)
    return {name: str(members[name]) for name in BAGGAGE_ATTRIBUTES if name in members} if members else {}
