"""Counters and histograms that record a value ten times as fast as the SDK's instruments.

`chassis.telemetry.sdk_histograms` exports the histograms; the SDK reads the counters at each export.
"""

import time
from bisect import bisect_left
from dataclasses import dataclass, field

from opentelemetry.trace import INVALID_SPAN, Span, SpanContext

from chassis.telemetry.semconv import Metric

Attributes = tuple[tuple[str, str | int], ...]


class Counter:
    """A counter that keeps one sum per combination of attributes."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Attributes, float] = {}

    def add(self, value: float = 1, attributes: Attributes = ()) -> None:
        self.values[attributes] = self.values.get(attributes, 0) + value

    def points(self) -> list[tuple[float, Attributes]]:
        # Copy the items: while the export thread runs this, the event loop may add new attributes.
        return [(value, attributes) for attributes, value in list(self.values.items())]


@dataclass(slots=True)
class Series:
    """Bucket counts and totals of all values with the same attributes."""

    counts: list[int]
    exemplars: dict[int, tuple[float, int, SpanContext]] = field(default_factory=dict)
    """Maps a bucket's index to its exemplar: a value, the time in nanoseconds since 1970, and the sampled span."""
    total: float = 0.0
    minimum: float = float("inf")
    maximum: float = 0.0


class Histogram:
    """A histogram that keeps one series per combination of attributes, such as method and status."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._bounds = metric.bounds
        self.started_unix_nano = time.time_ns()
        self.series: dict[Attributes, Series] = {}

    def record(self, value: float, attributes: Attributes = (), span: Span = INVALID_SPAN) -> None:
        """Record a value. If `span` is sampled, the value becomes its bucket's exemplar."""
        series = self.series.get(attributes)
        if series is None:
            # Use setdefault, because another thread may have just added the series.
            series = self.series.setdefault(attributes, Series([0] * (len(self._bounds) + 1)))
        bucket = bisect_left(self._bounds, value)
        series.counts[bucket] += 1
        series.total += value
        series.minimum = min(series.minimum, value)
        series.maximum = max(series.maximum, value)
        if span is not INVALID_SPAN and (context := span.get_span_context()).trace_flags.sampled:
            series.exemplars[bucket] = (value, time.time_ns(), context)
