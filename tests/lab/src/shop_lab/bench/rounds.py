"""Interleaved rounds: what is compared is measured in turns, so that a change of the machine's speed affects all."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self, TypeVar

from shop_lab.bench.measure import Noise

NOISE = "noise_percent"
# Of one core. A noisier round is repeated; if the noise lasts, its least noisy measurement counts.
NOISE_LIMIT = 10.0
_REPETITIONS = 1

MadeT = TypeVar("MadeT")
Figures = dict[str, float]
Measurement = Callable[[], Awaitable[Figures]]


@dataclass(frozen=True)
class Spread:
    """Median and range of a figure over all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        low, middle, high = (_short(value) for value in (self.low, self.median, self.high))
        return middle if low == high else f"{middle} ({low}-{high})"


Row = dict[str, Spread]
Rows = dict[str, Row]


async def interleaved(measurements: Mapping[str, Measurement], rounds: int) -> dict[str, list[Figures]]:
    """Make all measurements so many times, every other round in reverse order, and return the figures of each round."""
    made: dict[str, list[Figures]] = {name: [] for name in measurements}
    for number in range(rounds):
        names = list(measurements)
        for name in reversed(names) if number % 2 else names:
            figures, noise = await quietly(measurements[name])
            made[name].append({**figures, NOISE: noise})
    return made


async def in_turns(
    measurement: Callable[[], Awaitable[Mapping[str, Figures]]], rounds: int
) -> dict[str, list[Figures]]:
    """Make a measurement, in which what is compared takes turns, so many times; return the figures of each round."""
    made: dict[str, list[Figures]] = defaultdict(list)
    for _ in range(rounds):
        found, noise = await quietly(measurement)
        for name, figures in found.items():
            made[name].append({**figures, NOISE: noise})
    return made


async def quietly(measurement: Callable[[], Awaitable[MadeT]]) -> tuple[MadeT, float]:
    """Make a measurement, again while other work disturbs it; return it and the noise meanwhile."""
    attempts: list[tuple[MadeT, float]] = []
    while len(attempts) <= _REPETITIONS and not (attempts and attempts[-1][1] <= NOISE_LIMIT):
        noise = Noise()
        made = await measurement()
        attempts.append((made, noise.percent()))
    return min(attempts, key=lambda attempt: attempt[1])


def row(rounds: Sequence[Figures]) -> Row:
    """Return the spread of every figure."""
    return {name: Spread.of([figures[name] for figures in rounds]) for name in rounds[0]}


def ratio(rounds: Sequence[Figures], baseline: Sequence[Figures], figure: str) -> Spread:
    """Return the spread of the ratios of a figure to the baseline's in the same round."""
    return Spread.of([made[figure] / base[figure] for made, base in zip(rounds, baseline, strict=True)])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
