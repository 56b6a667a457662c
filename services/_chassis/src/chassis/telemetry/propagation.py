"""Trace context and baggage of calls between processes, by default as the W3C's headers.

Baggage is metadata of a whole trace, such as the session whose page began it. It passes through every service; the
members named in BAGGAGE_ATTRIBUTES also become attributes of each span.
"""

import logging
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import entry_points

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.telemetry import semconv

_W3C_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})
BAGGAGE_ATTRIBUTES = (semconv.SESSION_ID, semconv.SYNTHETIC_REQUEST)
# gRPC rejects calls with more than 8 KiB of metadata: longer baggage of one client must not fail its calls.
_MAX_BAGGAGE_CHARACTERS = 2048

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_FLAGS = tuple(map(TraceFlags, range(256)))
_BAGGAGE = W3CBaggagePropagator()
# It would log parts of malformed headers, which may contain anything.
logging.getLogger("opentelemetry.baggage.propagation").setLevel(logging.ERROR)


def extract(headers: Mapping[str, str]) -> tuple[Context, bool]:
    """Return the context that the headers describe, and whether it is part of an unsampled trace.

    Malformed headers and overlong baggage are ignored.
    """
    context, unsampled = _extract_trace_context(headers)
    if 0 < len(headers.get("baggage", "")) <= _MAX_BAGGAGE_CHARACTERS:
        return _BAGGAGE.extract(headers, context), unsampled
    return context, unsampled


def _extract_trace_context(headers: Mapping[str, str]) -> tuple[Context, bool]:
    match = None if "tracestate" in headers else _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if match is None:
        context = _TRACE_CONTEXT.extract(headers, Context())
        return context, is_unsampled(context)
    # What the propagator and is_unsampled do for the usual header: in half the time, 2 µs, or 20 where code is cold.
    trace_id, span_id, flags = match.groups()
    parent = SpanContext(int(trace_id, 16), int(span_id, 16), True, _FLAGS[int(flags, 16)])
    if not parent.is_valid:
        return Context(), False
    return trace.set_span_in_context(NonRecordingSpan(parent), Context()), not parent.trace_flags.sampled


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


_unsampled_headers: ContextVar[tuple[Context | None, Mapping[str, str] | None]] = ContextVar(
    "unsampled_headers", default=(None, None)
)


@dataclass(frozen=True)
class Propagation:
    """The headers with which trace context and baggage pass from one process to the next.

    Attributes:
        headers: names of all headers that `extract` reads, in lower case.
        extract: returns the context that headers describe, and whether it is part of an unsampled trace; ignores
            malformed ones and overlong baggage.
        inject: returns the headers of a call with this client span, and with the baggage of the current context.
    """

    headers: frozenset[str]
    extract: Callable[[Mapping[str, str]], tuple[Context, bool]]
    inject: Callable[[Span], dict[str, str]]

    def unsampled_headers(self) -> Mapping[str, str] | None:
        """Return the headers of a call from the current context; None if that is not part of an unsampled trace.

        Such calls have no spans, so all of them have the same headers, which are made once.
        """
        current = otel_context.get_current()
        cached_for, headers = _unsampled_headers.get()
        if cached_for is not current:
            headers = self.inject(trace.get_current_span(current)) if is_unsampled(current) else None
            _unsampled_headers.set((current, headers))
        return headers


def is_unsampled(context: Context) -> bool:
    """Return whether the context is part of a trace that is not sampled."""
    span = trace.get_current_span(context).get_span_context()
    return span.is_valid and not span.trace_flags.sampled


W3C = Propagation(_W3C_HEADERS, extract, inject)


def load_propagation(names: str) -> Propagation:
    """Return the propagation for a value of OTEL_PROPAGATORS. Raise ValueError for an unknown name.

    Besides OpenTelemetry's own, the propagators of the packages that are installed have names, such as `b3`.
    """
    chosen = dict.fromkeys(name.strip() for name in names.split(","))
    if chosen.keys() == {"tracecontext", "baggage"}:
        return W3C
    if "none" in chosen:
        if len(chosen) > 1:
            raise ValueError("none excludes all other propagators")
        return Propagation(frozenset(), lambda _headers: (Context(), False), lambda _span: {})
    return _composite(CompositePropagator([_load_propagator(name) for name in chosen]))


def _load_propagator(name: str) -> TextMapPropagator:
    for found in entry_points(group="opentelemetry_propagator", name=name):
        propagator: TextMapPropagator = found.load()()
        return propagator
    known = sorted({found.name for found in entry_points(group="opentelemetry_propagator")} | {"none"})
    raise ValueError(f"unknown propagator {name!r}; known are {', '.join(known)}")


def _composite(propagator: CompositePropagator) -> Propagation:
    def extract_context(headers: Mapping[str, str]) -> tuple[Context, bool]:
        if len(headers.get("baggage", "")) > _MAX_BAGGAGE_CHARACTERS:
            headers = {name: value for name, value in headers.items() if name != "baggage"}
        context = propagator.extract(headers, Context())
        return context, is_unsampled(context)

    def inject_span(span: Span) -> dict[str, str]:
        headers: dict[str, str] = {}
        propagator.inject(headers, trace.set_span_in_context(span))
        return {name.lower(): value for name, value in headers.items()}

    return Propagation(frozenset(name.lower() for name in propagator.fields), extract_context, inject_span)


def add_baggage(name: str, value: str) -> None:
    """Add a member to the baggage of the current context, and to the current span if it is one of the attributes."""
    otel_context.attach(baggage.set_baggage(name, value))
    if name in BAGGAGE_ATTRIBUTES:
        trace.get_current_span().set_attribute(name, value)


def baggage_attributes(context: Context | None = None) -> dict[str, str]:
    """Return the span attributes from the baggage of a context, by default the current one."""
    members = baggage.get_all(context)
    return {name: str(members[name]) for name in BAGGAGE_ATTRIBUTES if name in members} if members else {}
