"""When sessions begin: a Poisson process whose rate follows a shape."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_DAY_SECONDS = 86_400.0
_SPIKE_FACTOR = 5.0
_STEPS = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rate varies over a period.

    Attributes:
        factor: the rate, as a multiple of the nominal one, at a fraction (0 to 1) of the period.
        peak: the largest value of `factor`.
        period_seconds: the period of a run without an end, which repeats the shape. A run with an end is one period.
    """

    factor: Callable[[float], float]
    peak: float
    period_seconds: float


def _daily(fraction: float) -> float:
    """Return a day from midnight to midnight: a fifth of the rate at night, the full rate at noon."""
    return 0.6 - 0.4 * math.cos(2 * math.pi * fraction)


def _spike(fraction: float) -> float:
    return _SPIKE_FACTOR if 0.4 <= fraction < 0.5 else 1.0  # noqa: PLR2004 - a tenth of the period


def _step(fraction: float) -> float:
    return (math.floor(fraction * _STEPS) + 1) / _STEPS


SHAPES: Mapping[str, Shape] = {
    "steady": Shape(lambda _: 1.0, peak=1.0, period_seconds=_DAY_SECONDS),
    "daily": Shape(_daily, peak=1.0, period_seconds=_DAY_SECONDS),
    "spike": Shape(_spike, peak=_SPIKE_FACTOR, period_seconds=600.0),
    "step": Shape(_step, peak=1.0, period_seconds=600.0),
}


@dataclass(frozen=True, slots=True)
class ArrivalPlan:
    """Arrivals at `rate` sessions a second, times the factor of the shape."""

    rate: float
    shape: Shape
    period_seconds: float

    @classmethod
    def of(cls, rate: float, shape: str, *, duration_seconds: float | None = None) -> "ArrivalPlan":
        """Return the plan of a run that takes `duration_seconds`, or has no end."""
        chosen = SHAPES[shape]
        return cls(rate, chosen, duration_seconds or chosen.period_seconds)

    def share(self, of: int) -> "ArrivalPlan":
        """Return the plan of one of several independent sources, which together make these arrivals."""
        return ArrivalPlan(self.rate / of, self.shape, self.period_seconds)

    def arrivals(self, generator: random.Random, *, begin: float = 0.0) -> Iterator[float]:
        """Yield the times of arrivals in seconds since the start of the run, from `begin` on, without end.

        Candidates arrive at the peak rate; each one is accepted with the probability that makes the rate what it is at
        that time (Lewis and Shedler's thinning).
        """
        at = begin
        while True:
            at += generator.expovariate(self.rate * self.shape.peak)
            if generator.random() * self.shape.peak < self.shape.factor(at % self.period_seconds / self.period_seconds):
                yield at
