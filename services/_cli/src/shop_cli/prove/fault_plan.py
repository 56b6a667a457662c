"""Plan the faults of a run from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """What is done to a process; the value is the fault's name in the verdict."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART_DATABASE = "database restart"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process.

    Attributes:
        after_orders: the fault begins once so many orders are finished.
        target: the name of the process.
        seconds: until the process is started again or resumed.
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
    *,
    kills: int,
    pauses: int,
    restarts: int,
    targets: Sequence[TargetWeight],
    pause_seconds: float,
) -> list[Fault]:
    """Plan so many faults of each kind, evenly spaced over the orders, on randomly chosen targets.

    A pause lasts 1 to 1.5 times pause_seconds. Database restarts always hit `postgres`.
    """
    rng = random.Random(f"faults {seed}")  # noqa: S311 - a schedule, not a secret
    kinds = [FaultKind.KILL] * kills + [FaultKind.PAUSE] * pauses + [FaultKind.RESTART_DATABASE] * restarts
    rng.shuffle(kinds)
    return [
        _random_fault(rng, (index + 1) * orders // (len(kinds) + 1), kind, targets, pause_seconds)
        for index, kind in enumerate(kinds)
    ]


def _random_fault(
    rng: random.Random, after_orders: int, kind: FaultKind, targets: Sequence[TargetWeight], pause_seconds: float
) -> Fault:
    (target,) = rng.choices([each.name for each in targets], [each.weight for each in targets])
    seconds = pause_seconds * rng.uniform(1, 1.5) if kind is FaultKind.PAUSE else rng.uniform(0, 1)
    return Fault(
        after_orders, kind, target if kind is not FaultKind.RESTART_DATABASE else "postgres", round(seconds, 3)
    )
