"""Session arrivals: a Poisson process whose rate follows a shape."""

import math
import random
from collections.abc import Callable, Iterator, Mapping

PEAK = 5.0

SHAPES: Mapping[str, Callable[[float], float]] = {
    "steady": lambda _: 1.0,
    # The factor is 0.2 at midnight and 1 at noon.
    "daily": lambda fraction: 0.6 - 0.4 * math.cos(math.tau * fraction),
    # A spike lasts a tenth of the period.
    "spike": lambda fraction: PEAK if int(10 * fraction) == 4 else 1.0,  # noqa: PLR2004
    "step": lambda fraction: (int(5 * fraction) + 1) / 5,
}
"""Each shape maps a point in a period (0 to 1) to a multiple of the nominal rate, PEAK at most."""

_DAY_SECONDS, _PERIOD_SECONDS = 86_400.0, 600.0


def arrivals(
    rate: float, shape: str, duration_seconds: float | None, generator: random.Random, *, begin: float = 0.0
) -> Iterator[float]:
    """Yield an endless sequence of arrival times after `begin`, in seconds since the start of the run.

    There are `rate` sessions per second, times the shape's factor. With a time limit, the whole run is one period;
    otherwise, a period is a day for the shape `daily`, and ten minutes for all others.
    """
    period_seconds = duration_seconds or (_DAY_SECONDS if shape == "daily" else _PERIOD_SECONDS)
    seconds = begin
    while True:
        # Thinning (Lewis and Shedler): generate candidates at the peak rate, and accept each with probability
        # `factor / PEAK`.
        seconds += generator.expovariate(rate * PEAK)
        if generator.random() * PEAK < SHAPES[shape](seconds % period_seconds / period_seconds):
            yield seconds
