"""Stores a running shop's latest traces in memory. Traces with an order or an error are kept longer than others."""

import heapq
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from google.protobuf.message import Message

from chassis.telemetry import semconv
from shop_cli.local.call_figures import CallFigures
from shop_cli.local.otlp_receiver import spans_of
from shop_cli.local.spans import Span

# How many spans to store for traces with an order or an error, and for other traces. A span takes up to 1 kB of memory.
MAX_IMPORTANT, MAX_OTHERS = 40_000, 12_000
MAX_SPANS_OF_TRACE = 1_000
_EXPORT_NANOS = 3 * 10**9


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace's summary, for lists of traces.

    Attributes:
        service, name, started_nanos, milliseconds: copied from the trace's first span.
        order_id: the id of the trace's order; "" if it has none.
        has_root: whether the first span is a root span.
    """

    trace_id: str
    service: str
    name: str
    started_nanos: int
    milliseconds: float
    spans: int
    failed: bool
    order_id: str
    has_root: bool


SORT_KEYS = {"started": "started_nanos", "duration": "milliseconds", "spans": "spans"}
"""Maps a query's `sort` to the TraceSummary attribute by which traces are sorted, highest first."""


@dataclass(frozen=True)
class TraceQuery:
    """A search for traces; the defaults match every trace.

    Attributes:
        service: a service that took part in the trace.
        operation: the name of any span in the trace.
        attributes: span attributes, with their values as text. At least one span must have all of them.
        failed, ordered: whether to find only traces with an error, or only traces with an order.
        since_nanos, until_nanos: the earliest and latest time at which the trace started.
        sort: a key of SORT_KEYS.
    """

    service: str = ""
    operation: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    min_milliseconds: float = 0.0
    failed: bool = False
    ordered: bool = False
    since_nanos: int = 0
    until_nanos: int = 2**63
    sort: str = "started"
    limit: int = 50


@dataclass(slots=True)
class _Trace:
    spans: list[Span] = field(default_factory=list)
    _summary: TraceSummary | None = None

    @property
    def summary(self) -> TraceSummary:
        spans = self.spans
        if self._summary is None or self._summary.spans != len(spans):
            ids = {span.span_id for span in spans}
            first = min(spans, key=lambda span: (span.parent_id in ids, span.started_nanos))
            failed = any(span.failed for span in spans)
            order_id = next((str(given) for span in spans if (given := span.attributes.get(semconv.ORDER_ID))), "")
            call = (first.trace_id, first.service, first.name, first.started_nanos, first.milliseconds)
            self._summary = TraceSummary(*call, len(spans), failed, order_id, has_root=not first.parent_id)
        return self._summary


class _Quota:
    """Stores traces with up to `max_spans` spans in total. Beyond this limit, the oldest traces are dropped."""

    def __init__(self, max_spans: int) -> None:
        self.traces: OrderedDict[str, _Trace] = OrderedDict()
        self._left = max_spans

    def add(self, trace_id: str, spans: Sequence[Span]) -> None:
        stored = self.traces.setdefault(trace_id, _Trace()).spans
        added = spans[: MAX_SPANS_OF_TRACE - len(stored)]
        stored += added
        self._left -= len(added)
        while self._left < 0:
            self.remove(next(iter(self.traces)))

    def remove(self, trace_id: str) -> Sequence[Span]:
        """Remove a trace and return its spans, or no spans if the trace is not stored."""
        spans = self.traces.pop(trace_id, _Trace()).spans
        self._left += len(spans)
        return spans


class TelemetryStore:
    """Stores exported spans, with separate quotas for traces with an order or an error and for other traces."""

    def __init__(self, max_important: int = MAX_IMPORTANT, max_others: int = MAX_OTHERS) -> None:
        self.calls = CallFigures()
        self._important, self._others = _Quota(max_important), _Quota(max_others)

    @property
    def stored(self) -> tuple[int, int]:
        """The number of stored traces with an order or an error, and the number of other stored traces."""
        return len(self._important.traces), len(self._others.traces)

    def add(self, message: Message) -> None:
        for span in spans_of(message):
            self.store(span)

    def store(self, span: Span) -> None:
        if not span.parent_id and semconv.DB_SYSTEM in span.attributes:
            return  # ignore readiness checks' queries: all other queries have a request's span as their parent
        self.calls.count(span)
        trace_id = span.trace_id
        if span.failed or semconv.ORDER_ID in span.attributes or trace_id in self._important.traces:
            # If this span makes the trace important, move its earlier spans to the important traces too.
            self._important.add(trace_id, [*self._others.remove(trace_id), span])
        else:
            self._others.add(trace_id, [span])

    def trace(self, trace_id: str) -> Sequence[Span]:
        """Return a trace's spans, or no spans if the trace is unknown or no longer stored."""
        found = self._important.traces.get(trace_id) or self._others.traces.get(trace_id)
        return tuple(found.spans) if found else ()

    def summaries(self, query: TraceQuery) -> list[TraceSummary]:
        traces = (*self._important.traces.values(), *self._others.traces.values())
        found = [trace.summary for trace in traces if _matches(query, trace)]
        return heapq.nlargest(query.limit, found, key=attrgetter(SORT_KEYS[query.sort]))


def _matches(query: TraceQuery, trace: _Trace) -> bool:
    first, spans = trace.summary, trace.spans
    return (
        # Skip a recent trace without a root span, because the root span may not have been exported yet.
        query.since_nanos <= first.started_nanos <= query.until_nanos
        and (first.has_root or time.time_ns() - first.started_nanos - first.milliseconds * 1e6 > _EXPORT_NANOS)
        and query.min_milliseconds <= first.milliseconds
        and (not query.failed or first.failed)
        and (not query.ordered or bool(first.order_id))
        and (not query.service or any(span.service == query.service for span in spans))
        and (not query.operation or any(span.name == query.operation for span in spans))
        and any(
            all(str(span.attributes.get(name)) == value for name, value in query.attributes.items()) for span in spans
        )
    )
