"""A process's tracer, logger and metrics; `chassis.telemetry.otlp` configures their export.

The counters and histograms record a value ten times as fast as the SDK's instruments. `chassis.telemetry.sdk` exports
the histograms; the SDK reads the counters at each export.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from opentelemetry._logs import Logger
from opentelemetry.metrics import CallbackOptions, Meter, NoOpMeter, Observation
from opentelemetry.trace import INVALID_SPAN, NoOpTracer, Span, SpanContext, Tracer

from chassis.telemetry.propagation import W3C, Propagation
from chassis.telemetry.semconv import Metric

SCOPE = "shop"

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


@dataclass(frozen=True)
class Telemetry:
    """A process's telemetry, passed to all code that serves or makes calls. By default, it exports nothing."""

    tracer: Tracer = field(default_factory=NoOpTracer)
    meter: Meter = field(default_factory=lambda: NoOpMeter(SCOPE))
    logger: Logger | None = None
    histograms: dict[str, Histogram] = field(default_factory=dict)
    counters: dict[str, Counter] = field(default_factory=dict)
    propagation: Propagation = W3C
    # Whether the sampler follows the parent span's sampling decision. If so, no spans are started in unsampled traces.
    follows_parents: bool = True
    is_exported: bool = False
    shutdown: Callable[[], None] = lambda: None

    def histogram(self, metric: Metric) -> Histogram:
        return self.histograms.setdefault(metric.name, Histogram(metric))

    def counter(self, metric: Metric) -> Counter:
        counter = self.counters.get(metric.name)
        if counter is None:
            counter = self.counters[metric.name] = Counter(metric)
            self.observe(metric, counter.points)
        return counter

    def observe(self, metric: Metric, read: Callable[[], Iterable[tuple[float, Attributes]]]) -> None:
        """Get the metric's values, with their attributes, from `read` at each export, unless it raises OSError."""

        def callback(_options: CallbackOptions) -> Iterable[Observation]:
            try:
                return [Observation(value, dict(attributes)) for value, attributes in read()]
            except OSError:  # if a file doesn't exist yet, for example, still export the other metrics
                return []

        create = getattr(self.meter, f"create_observable_{metric.kind}")
        create(metric.name, [callback], unit=metric.unit, description=metric.description)
