"""Plan the faults of a run from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from shop_cli.prove.mail_relay import RelayMode
from shop_cli.prove.tcp_proxy import Mode

DATABASE = "postgres"
_LONGEST_LAG_SECONDS = 0.6


class FaultKind(Enum):
    """What is done to a process; the value is the fault's name in the verdict."""

    KILL = "kill"
    KILL_AT_FAILPOINT = "kill at a failpoint"
    """The process dies when it reaches a certain point in the code."""
    PAUSE = "pause"
    RESTART_DATABASE = "database restart"
    FAILOVER = "failover"
    """The primary dies and a standby is promoted."""
    NETWORK = "network fault"
    """The connections from checkout to the process are delayed, duplicated, cut or silent."""
    UNIMPLEMENTED = "unimplemented peer"
    """Another server, which implements none of the methods, answers instead of the process."""
    REFUSAL = "refusing shipping"
    """Another server, which quotes but refuses to ship, answers instead of shipping."""

    MAIL_RELAY = "mail relay fault"
    """The relay is slow, refuses temporarily, or hangs up after it has accepted a mail."""


NETWORK_MODES: tuple[Mode, ...] = ("delay", "duplicate", "reset", "blackhole", "half-open")
RELAY_MODES: tuple[RelayMode, ...] = ("slow", "defer", "hang up")
RELAY = "mail relay"
_FIXED_TARGETS = {
    FaultKind.MAIL_RELAY: RELAY,
    FaultKind.RESTART_DATABASE: DATABASE,
    FaultKind.FAILOVER: DATABASE,
    FaultKind.REFUSAL: "shipping",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process.

    Attributes:
        after_orders: the fault begins once so many orders are finished.
        target: the name of the process.
        seconds: until the process is started again, resumed or reachable; of a failover, how far standbys are behind.
        detail: the name of the failpoint, or what the network or the relay does.
    """

    after_orders: int
    kind: FaultKind
    target: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Targets:
    """The processes that faults may hit.

    Attributes:
        weights: how often a process is killed or paused, relative to the others.
        failpoints: of those processes that have any.
        peers: the processes that checkout calls through a proxy.
        leaseholders: the processes that own orders for a time; half of the pauses hit one of them.
    """

    weights: Mapping[str, int]
    failpoints: Mapping[str, Sequence[str]]
    peers: Sequence[str]
    leaseholders: Sequence[str]


def plan_faults(
    orders: int, seed: int, counts: Mapping[FaultKind, int], targets: Targets, pause_seconds: float
) -> list[Fault]:
    """Plan so many faults of each kind, evenly spaced over the orders, on randomly chosen targets.

    A pause lasts 1 to 1.5 times pause_seconds.
    """
    rng = random.Random(f"faults {seed}")  # noqa: S311 - a schedule, not a secret
    kinds = [kind for kind in FaultKind for _ in range(counts.get(kind, 0))]
    rng.shuffle(kinds)
    return [
        _random_fault(rng, (index + 1) * orders // (len(kinds) + 1), kind, targets, pause_seconds)
        for index, kind in enumerate(kinds)
    ]


def _random_fault(
    rng: random.Random, after_orders: int, kind: FaultKind, targets: Targets, pause_seconds: float
) -> Fault:
    detail = ""
    (target,) = rng.choices(list(targets.weights), list(targets.weights.values()))
    seconds = rng.uniform(0, 1)
    match kind:
        case FaultKind.KILL_AT_FAILPOINT:
            target = rng.choice([name for name, points in targets.failpoints.items() if points])
            detail = rng.choice(targets.failpoints[target])
        case FaultKind.PAUSE:
            seconds = pause_seconds * rng.uniform(1, 1.5)
            target = rng.choice([target, rng.choice(targets.leaseholders)])
        case FaultKind.FAILOVER:
            seconds = rng.uniform(0, _LONGEST_LAG_SECONDS)
        case FaultKind.NETWORK:
            target, detail, seconds = rng.choice(targets.peers), rng.choice(NETWORK_MODES), rng.uniform(0.2, 2)
        case FaultKind.MAIL_RELAY:
            detail, seconds = rng.choice(RELAY_MODES), rng.uniform(0.2, 2)
        case FaultKind.UNIMPLEMENTED:
            target, seconds = rng.choice(targets.peers), rng.uniform(0.2, 2)
    return Fault(after_orders, kind, _FIXED_TARGETS.get(kind, target), round(seconds, 3), detail)
