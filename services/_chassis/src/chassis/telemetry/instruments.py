"""A process's tracer, logger and metrics; `chassis.telemetry.otlp` configures their export."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from opentelemetry._logs import Logger
from opentelemetry.metrics import CallbackOptions, Meter, NoOpMeter, Observation
from opentelemetry.trace import NoOpTracer, Tracer

from chassis.telemetry.metrics import Attributes, Counter, Histogram
from chassis.telemetry.propagation import W3C, Propagation
from chassis.telemetry.semconv import Metric

SCOPE = "shop"

Read = Callable[[], Iterable[tuple[float, Attributes]]]
"""Returns a metric's current values, each with its attributes."""


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

    def observe(self, metric: Metric, read: Read) -> None:
        """Get the metric's values from `read` at each export, or leave the metric out if `read` raises OSError."""

        def callback(_options: CallbackOptions) -> Iterable[Observation]:
            try:
                return [Observation(value, dict(attributes)) for value, attributes in read()]
            except OSError:  # if a file doesn't exist yet, for example, still export the other metrics
                return []

        create = getattr(self.meter, f"create_observable_{metric.kind.value}")
        create(metric.name, [callback], unit=metric.unit, description=metric.description)
