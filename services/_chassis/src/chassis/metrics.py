"""Durations of calls as histograms with exemplars, at a tenth of the SDK histogram's cost for each call.

The SDK's own instruments serve everything that is not counted on every call; `chassis.otlp` exports both together.
"""

import time
from bisect import bisect_left
from dataclasses import dataclass, field

from opentelemetry.trace import SpanContext

# Seconds. The conventions' bounds, and finer ones below 5 ms, where most calls of a shop lie.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

Attributes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SampledCall:
    """A call that was traced, as an example of its bucket."""

    seconds: float
    time_unix_nano: int
    span: SpanContext


@dataclass(slots=True)
class Series:
    """The histogram of the calls that share their attributes."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    examples: dict[int, SampledCall] = field(default_factory=dict)
    total_seconds: float = 0.0
    shortest_seconds: float = float("inf")
    longest_seconds: float = 0.0


class CallDurations:
    """The durations of one side's calls, by attributes such as method and outcome."""

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.started_unix_nano = time.time_ns()
        self.series: dict[Attributes, Series] = {}

    def record(self, seconds: float, attributes: Attributes, span: SpanContext) -> None:
        """Count one call; a sampled span becomes the example of its bucket."""
        series = self.series.get(attributes)
        if series is None:
            series = self.series.setdefault(attributes, Series())
        bucket = bisect_left(BOUNDS, seconds)
        series.counts[bucket] += 1
        series.total_seconds += seconds
        series.shortest_seconds = min(series.shortest_seconds, seconds)
        series.longest_seconds = max(series.longest_seconds, seconds)
        if span.trace_flags.sampled:
            series.examples[bucket] = SampledCall(seconds, time.time_ns(), span)
