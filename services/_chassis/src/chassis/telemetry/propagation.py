"""Propagates trace context and baggage between processes, by default in W3C headers.

Baggage is metadata about a whole trace, such as the id of the session that started the trace. Every service passes
baggage on, and adds the entries listed in BAGGAGE_ATTRIBUTES to its spans.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from importlib.metadata import entry_points
from urllib.parse import unquote

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.telemetry import semconv
from chassis.values.cards import has_card_number

BAGGAGE_ATTRIBUTES = (semconv.SESSION_ID, semconv.SYNTHETIC_REQUEST)
TRACEPARENT = "traceparent"
_BAGGAGE_HEADER = "baggage"
_W3C_HEADERS = frozenset({TRACEPARENT, "tracestate", _BAGGAGE_HEADER})
_UNSAMPLED = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]")
# Random ids, which may look like card numbers. Baggage and trace state contain other characters.
_IDS = re.compile("[0-9a-f:-]+")
# gRPC rejects calls with more than 8 KiB of metadata, so a client's overlong baggage would make our own calls fail.
_MAX_BAGGAGE_CHARACTERS = 2048

# Suppress these loggers' warnings, because they quote malformed headers, which may contain secrets.
for _quoting in ("opentelemetry.baggage", "opentelemetry.trace", "opentelemetry.propagators"):
    logging.getLogger(_quoting).setLevel(logging.ERROR)

unsampled_traceparent: ContextVar[str] = ContextVar("unsampled_traceparent", default="")
"""The traceparent header of an unsampled call, to be passed on without creating an SDK context. Otherwise empty."""


class Propagation:
    """Reads and writes the headers that carry trace context and baggage. Header names are lower case."""

    def __init__(self, *propagators: TextMapPropagator) -> None:
        self._propagator = CompositePropagator(propagators)
        self.headers = frozenset(name.lower() for name in self._propagator.fields)
        self._is_w3c = self.headers <= _W3C_HEADERS

    def extract(self, headers: Iterable[tuple[str, object]]) -> Context:
        """Parse trace context and baggage from headers, ignoring overlong baggage, and text with a card number."""
        known = {name: str(value) for name, value in headers if name in self.headers}
        known = {
            name: value for name, value in known.items() if _IDS.fullmatch(value) or not has_card_number(unquote(value))
        }
        if len(known.get(_BAGGAGE_HEADER, "")) > _MAX_BAGGAGE_CHARACTERS:
            del known[_BAGGAGE_HEADER]
        # Start from an empty context: nothing in the current context belongs to the caller's trace.
        return self._propagator.extract(known, Context())

    def pass_on(self, headers: Sequence[tuple[str, object]]) -> bool:
        """If the only header is an unsampled traceparent, store it in `unsampled_traceparent` and return True."""
        if not self._is_w3c or len(headers) != 1 or headers[0][0] != TRACEPARENT:
            return False
        traceparent = str(headers[0][1])
        if _UNSAMPLED.fullmatch(traceparent) is None:
            return False
        unsampled_traceparent.set(traceparent)
        return True

    def inject(self, context: Context | None = None) -> dict[str, str]:
        """Return the headers that propagate a context (default: the current context)."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers, context)
        # gRPC rejects capital letters in header names, but the b3multi propagator uses them.
        return {name.lower(): value for name, value in headers.items()}


W3C = Propagation(TraceContextTextMapPropagator(), W3CBaggagePropagator())


def load_propagation(names: str) -> Propagation:
    """Load the propagators listed in OTEL_PROPAGATORS. Raise ValueError if one of them isn't installed."""
    chosen = dict.fromkeys(name.strip() for name in names.split(","))
    if [*chosen] == ["none"]:
        return Propagation()
    known = {found.name: found for found in entry_points(group="opentelemetry_propagator")}
    for name in chosen:
        if name not in known:
            raise ValueError(f"must be none, or some of {', '.join(sorted(known))}, not {name!r}")
    return Propagation(*(known[name].load()() for name in chosen))


def begin_trace(given: Context) -> tuple[Context, list[Link]]:
    """Return an empty context, which starts a new trace, and a link to the untrusted client's trace, if any."""
    span = trace.get_current_span(given).get_span_context()
    linked = SpanContext(span.trace_id, span.span_id, is_remote=True)  # drop the trace state: it may contain anything
    return Context(), [Link(linked)] if linked.is_valid else []


def is_unsampled(context: Context | None = None) -> bool:
    """Return whether a context (default: the current context) belongs to an unsampled trace."""
    span = trace.get_current_span(context).get_span_context()
    return span.is_valid and not span.trace_flags.sampled


def is_sampled() -> bool:
    """Return whether the current trace is sampled."""
    return not unsampled_traceparent.get() and trace.get_current_span().get_span_context().trace_flags.sampled


def current_span_context() -> SpanContext:
    """Return the ids of the current trace and span, even if the trace is unsampled."""
    traceparent = unsampled_traceparent.get()
    if not traceparent:
        return trace.get_current_span().get_span_context()
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def current_context() -> Context:
    """Return the current trace and baggage as an SDK context."""
    if not unsampled_traceparent.get():
        return otel_context.get_current()
    return trace.set_span_in_context(NonRecordingSpan(current_span_context()), Context())


def add_baggage(name: str, value: str) -> None:
    """Add an entry to the current baggage and, if its name is in BAGGAGE_ATTRIBUTES, to the current span."""
    otel_context.attach(baggage.set_baggage(name, value, current_context()))
    unsampled_traceparent.set("")
    if name in BAGGAGE_ATTRIBUTES:
        trace.get_current_span().set_attribute(name, value)


def baggage_attributes(context: Context | None = None) -> dict[str, str]:
    """Return the baggage entries listed in BAGGAGE_ATTRIBUTES, from the given or the current context."""
    members = baggage.get_all(context)
    return {name: str(members[name]) for name in BAGGAGE_ATTRIBUTES if name in members}
