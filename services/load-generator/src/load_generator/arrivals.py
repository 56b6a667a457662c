"""Session arrivals: a Poisson process whose rate follows a shape."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rate varies over a period.

    Attributes:
        factor: maps a point in the period (0 to 1) to a multiple of the nominal rate.
        peak: the largest value of `factor`.
        period_seconds: the length of a period. In a run with a time limit, the whole run is one period instead.
    """

    factor: Callable[[float], float]
    peak: float
    period_seconds: float


SHAPES: Mapping[str, Shape] = {
    "steady": Shape(lambda _: 1.0, peak=1.0, period_seconds=_DAY_SECONDS),
    # The factor is 0.2 at midnight and 1 at noon.
    "daily": Shape(lambda fraction: 0.6 - 0.4 * math.cos(math.tau * fraction), peak=1.0, period_seconds=_DAY_SECONDS),
    # A spike lasts a tenth of the period.
    "spike": Shape(lambda fraction: 5.0 if int(10 * fraction) == 4 else 1.0, peak=5.0, period_seconds=600.0),  # noqa: PLR2004
    "step": Shape(lambda fraction: (int(5 * fraction) + 1) / 5, peak=1.0, period_seconds=600.0),
}


@dataclass(frozen=True, slots=True)
class ArrivalPlan:
    """Plans arrivals: `rate` sessions per second, times the shape's factor. By default, there is no time limit."""

    rate: float
    shape: str
    duration_seconds: float | None = None

    def arrivals(self, generator: random.Random, *, begin: float = 0.0) -> Iterator[float]:
        """Yield an endless sequence of arrival times after `begin`, in seconds since the start of the run.

        Use thinning (Lewis and Shedler): generate candidates at the peak rate, and accept each with probability
        `factor / peak`.
        """
        seconds, shape = begin, SHAPES[self.shape]
        period_seconds = self.duration_seconds or shape.period_seconds
        while True:
            seconds += generator.expovariate(self.rate * shape.peak)
            factor = shape.factor(seconds % period_seconds / period_seconds)
            if generator.random() * shape.peak < factor:
                yield seconds
