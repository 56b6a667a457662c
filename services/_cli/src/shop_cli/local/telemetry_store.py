"""The latest traces of a running shop, and the rate, errors and durations of each service, in bounded memory."""

import math
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message
from typing_extensions import override

from chassis.telemetry import semconv
from shop_cli.local.otlp_receiver import Sink, spans_of
from shop_cli.local.spans import Span

MAX_TRACES = 500
MAX_SPANS = 1_000
WINDOW_SECONDS = 60
# Durations are counted in buckets that are 5 % wide, so a percentile is exact to 5 %.
_GROWTH = math.log(1.05)
_EXPORT_NANOS = 3 * 10**9


@dataclass(frozen=True)
class Figures:
    """What a service served in the last minute: calls and failed calls per second, and milliseconds per call."""

    rate: float = 0.0
    error_rate: float = 0.0
    p50_milliseconds: float = 0.0
    p99_milliseconds: float = 0.0


@dataclass(frozen=True)
class TraceSummary:
    """A trace in a list.

    Attributes:
        service, name: of its first span.
        milliseconds: of its first span.
        failed: whether any span failed.
        order_id: of the order that it placed, "" if it placed none.
    """

    trace_id: str
    service: str
    name: str
    started_nanos: int
    milliseconds: float
    spans: int
    failed: bool
    order_id: str


@dataclass(frozen=True)
class TraceQuery:
    """A search for traces; the defaults match every trace.

    Attributes:
        service: one that took part.
        operation: the name of a span.
        attributes: of one span, as text.
        since_nanos, until_nanos: when the trace started.
    """

    service: str = ""
    operation: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    min_milliseconds: float = 0.0
    failed: bool = False
    since_nanos: int = 0
    until_nanos: int = 2**63
    limit: int = 50


@dataclass
class _Second:
    calls: int = 0
    errors: int = 0
    durations: Counter[int] = field(default_factory=Counter)


class TelemetryStore(Sink):
    """Stores what services export. Traces beyond the maximum are dropped, oldest first."""

    def __init__(self, max_traces: int = MAX_TRACES, max_spans: int = MAX_SPANS) -> None:
        self._max_traces = max_traces
        self._max_spans = max_spans
        self._traces: OrderedDict[str, list[Span]] = OrderedDict()
        self._seconds: defaultdict[str, dict[int, _Second]] = defaultdict(dict)

    @override
    def add(self, message: Message) -> None:
        for span in spans_of(message):
            self._add(span)

    def trace(self, trace_id: str) -> Sequence[Span]:
        """Return the spans of a trace, none if it is unknown."""
        return tuple(self._traces.get(trace_id, ()))

    def find(self, query: TraceQuery) -> list[str]:
        """Return the ids of the traces that match, latest first."""
        found = (trace_id for trace_id, spans in reversed(self._traces.items()) if _matches(query, spans))
        return [trace_id for trace_id, _ in zip(found, range(query.limit), strict=False)]

    def summaries(self, query: TraceQuery) -> list[TraceSummary]:
        """Describe the traces that match, latest first."""
        return [summarize(self._traces[trace_id]) for trace_id in self.find(query)]

    def figures(self, service: str, now: float) -> Figures:
        """Return what a service served in the minute before `now`, in seconds since 1970."""
        recent = [counts for second, counts in self._seconds[service].items() if second > now - WINDOW_SECONDS]
        durations = sum((counts.durations for counts in recent), Counter[int]())
        calls = durations.total()
        if not calls:
            return Figures()
        errors = sum(counts.errors for counts in recent)
        p50, p99 = (_percentile(durations, share) for share in (0.5, 0.99))
        return Figures(calls / WINDOW_SECONDS, errors / WINDOW_SECONDS, p50, p99)

    def _add(self, span: Span) -> None:
        if not span.parent_id and semconv.DB_SYSTEM in span.attributes:
            return  # a readiness check; queries of requests have a parent
        spans = self._traces.setdefault(span.trace_id, [])
        if len(spans) < self._max_spans:
            spans.append(span)
        while len(self._traces) > self._max_traces:
            self._traces.popitem(last=False)
        if span.kind == "SERVER":
            self._count(span)

    def _count(self, span: Span) -> None:
        seconds, now = self._seconds[span.service], span.ended_nanos // 10**9
        if now not in seconds:
            for old in [second for second in seconds if second <= now - 2 * WINDOW_SECONDS]:
                del seconds[old]
        second = seconds.setdefault(now, _Second())
        second.calls += 1
        second.errors += span.failed
        second.durations[round(math.log(max(span.milliseconds, 0.001)) / _GROWTH)] += 1


def summarize(spans: Sequence[Span]) -> TraceSummary:
    """Describe a trace that has a span."""
    first = _first(spans)
    order_id = next(
        (str(span.attributes[semconv.ORDER_ID]) for span in spans if semconv.ORDER_ID in span.attributes), ""
    )
    failed = any(span.failed for span in spans)
    return TraceSummary(
        first.trace_id, first.service, first.name, first.started_nanos, first.milliseconds, len(spans), failed, order_id
    )


def _first(spans: Sequence[Span]) -> Span:
    ids = {span.span_id for span in spans}
    return min(spans, key=lambda span: (span.parent_id in ids, span.started_nanos))


def _matches(query: TraceQuery, spans: Sequence[Span]) -> bool:
    first = _first(spans)
    return (
        # Services export at different times: the beginning of a recent trace may still arrive.
        (not first.parent_id or time.time_ns() - first.ended_nanos > _EXPORT_NANOS)
        and query.min_milliseconds <= first.milliseconds
        and query.since_nanos <= first.started_nanos <= query.until_nanos
        and (not query.service or any(span.service == query.service for span in spans))
        and (not query.operation or any(span.name == query.operation for span in spans))
        and (not query.failed or any(span.failed for span in spans))
        and (not query.attributes or any(_has_attributes(span, query.attributes) for span in spans))
    )


def _has_attributes(span: Span, wanted: dict[str, str]) -> bool:
    return all(name in span.attributes and str(span.attributes[name]) == value for name, value in wanted.items())


def _percentile(durations: Counter[int], share: float) -> float:
    """Return the milliseconds within which a share of the calls ended."""
    left = share * durations.total()
    for bucket, count in sorted(durations.items()):
        left -= count
        if left <= 0:
            return math.exp(bucket * _GROWTH)
    return 0.0
