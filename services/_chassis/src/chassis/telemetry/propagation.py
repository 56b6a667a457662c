"""Propagates trace context and baggage between processes, by default in the W3C's headers.

Baggage is metadata of a whole trace, such as the session that started it. It passes through every service; its members
in BAGGAGE_ATTRIBUTES become attributes of every span.
"""

import logging
from collections.abc import Iterable
from importlib.metadata import entry_points

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chassis.telemetry import semconv

BAGGAGE_ATTRIBUTES = (semconv.SESSION_ID, semconv.SYNTHETIC_REQUEST)
_BAGGAGE_HEADER = "baggage"
# gRPC rejects calls with more than 8 KiB of metadata: overlong baggage of a client must not make its calls fail.
_MAX_BAGGAGE_CHARACTERS = 2048

# Their warnings quote malformed headers, which may contain anything.
for _quoting in ("opentelemetry.baggage", "opentelemetry.trace", "opentelemetry.propagators"):
    logging.getLogger(_quoting).setLevel(logging.ERROR)


class Propagation:
    """The headers, with names in lower case, that carry trace context and baggage from one process to the next."""

    def __init__(self, *propagators: TextMapPropagator) -> None:
        self._propagator = CompositePropagator(propagators)
        self.headers = frozenset(name.lower() for name in self._propagator.fields)

    def extract(self, headers: Iterable[tuple[str, object]]) -> Context:
        """Return the context in these headers; malformed headers and overlong baggage are ignored."""
        known = {name: str(value) for name, value in headers if name in self.headers}
        if len(known.get(_BAGGAGE_HEADER, "")) > _MAX_BAGGAGE_CHARACTERS:
            del known[_BAGGAGE_HEADER]
        # Into an empty context: nothing in the current one belongs to the caller's trace.
        return self._propagator.extract(known, Context())

    def inject(self, context: Context | None = None) -> dict[str, str]:
        """Return the headers for a call made in this context, by default the current one."""
        headers: dict[str, str] = {}
        self._propagator.inject(headers, context)
        # gRPC rejects metadata with capital letters, which b3multi uses.
        return {name.lower(): value for name, value in headers.items()}


W3C = Propagation(TraceContextTextMapPropagator(), W3CBaggagePropagator())


def load_propagation(names: str) -> Propagation:
    """Return the propagation for a value of OTEL_PROPAGATORS. Raise ValueError for an unknown name.

    Installed packages add propagators to OpenTelemetry's own, such as `b3`.
    """
    chosen = dict.fromkeys(name.strip() for name in names.split(","))
    if [*chosen] == ["none"]:
        return Propagation()
    known = {found.name: found for found in entry_points(group="opentelemetry_propagator")}
    for name in chosen:
        if name not in known:
            raise ValueError(f"must be none, or some of {', '.join(sorted(known))}, not {name!r}")
    return Propagation(*(known[name].load()() for name in chosen))


def begin_trace(given: Context) -> tuple[Context, list[Link]]:
    """Return the context of a new trace with a link to the given one, which a stranger chose."""
    span = trace.get_current_span(given).get_span_context()
    linked = SpanContext(span.trace_id, span.span_id, is_remote=True)  # without its state, which may be any text
    return Context(), [Link(linked)] if linked.is_valid else []


def is_unsampled(context: Context | None = None) -> bool:
    """Return whether a context, by default the current one, belongs to an unsampled trace."""
    span = trace.get_current_span(context).get_span_context()
    return span.is_valid and not span.trace_flags.sampled


def add_baggage(name: str, value: str) -> None:
    """Add a member to the current baggage and, if it is in BAGGAGE_ATTRIBUTES, to the current span."""
    otel_context.attach(baggage.set_baggage(name, value))
    if name in BAGGAGE_ATTRIBUTES:
        trace.get_current_span().set_attribute(name, value)


def baggage_attributes(context: Context | None = None) -> dict[str, str]:
    """Return the span attributes from the baggage of a context, by default the current one."""
    members = baggage.get_all(context)
    return {name: str(members[name]) for name in BAGGAGE_ATTRIBUTES if name in members}
