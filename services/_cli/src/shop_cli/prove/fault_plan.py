"""Plan the faults of a run from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

DATABASE = "postgres"
_LONGEST_LAG_SECONDS = 0.6


class FaultKind(Enum):
    """What is done to a process; the value is the fault's name in the verdict."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART_DATABASE = "database restart"
    FAILOVER = "failover"
    """The primary dies and a standby is promoted."""


_OF_DATABASE = frozenset({FaultKind.RESTART_DATABASE, FaultKind.FAILOVER})


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process.

    Attributes:
        after_orders: the fault begins once so many orders are finished.
        target: the name of the process.
        seconds: until the process is started again or resumed; of a failover, how far its standbys are behind.
    """

    after_orders: int
    kind: FaultKind
    target: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TargetWeight:
    """How often a process is chosen as a fault's target, relative to the others."""

    name: str
    weight: int


def plan_faults(
    orders: int,
    seed: int,
    counts: Mapping[FaultKind, int],
    *,
    targets: Sequence[TargetWeight],
    pause_seconds: float,
) -> list[Fault]:
    """Plan so many faults of each kind, evenly spaced over the orders, on randomly chosen targets.

    A pause lasts 1 to 1.5 times pause_seconds. Restarts and failovers always hit the database.
    """
    rng = random.Random(f"faults {seed}")  # noqa: S311 - a schedule, not a secret
    kinds = [kind for kind in FaultKind for _ in range(counts.get(kind, 0))]
    rng.shuffle(kinds)
    return [
        _random_fault(rng, (index + 1) * orders // (len(kinds) + 1), kind, targets, pause_seconds)
        for index, kind in enumerate(kinds)
    ]


def _random_fault(
    rng: random.Random, after_orders: int, kind: FaultKind, targets: Sequence[TargetWeight], pause_seconds: float
) -> Fault:
    (target,) = rng.choices([each.name for each in targets], [each.weight for each in targets])
    match kind:
        case FaultKind.PAUSE:
            seconds = pause_seconds * rng.uniform(1, 1.5)
        case FaultKind.FAILOVER:
            seconds = rng.uniform(0, _LONGEST_LAG_SECONDS)
        case _:
            seconds = rng.uniform(0, 1)
    return Fault(after_orders, kind, DATABASE if kind in _OF_DATABASE else target, round(seconds, 3))
