"""Plan the faults of a run from a seed."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import cycle

from checkout_service.failpoints import RESOLVE, VOID
from shop_cli.local.workspace import internal_name
from shop_kit.smtp_relay import RelayMode
from shop_kit.tcp_proxy import Mode
from shop_lab.world.shop_under_test import LEASE_SECONDS, Database

DATABASE, SHIPPING = "postgres", "shipping"


class FaultKind(Enum):
    """What is done to a process; the value is the fault's name in the verdict."""

    KILL = "kill"
    KILL_AT_FAILPOINT = "kill at a failpoint"
    """The process dies when it reaches a certain point in the code."""
    PAUSE = "pause"
    STALL = "stalled workers"
    """Workers stop before a charge, or after they have resolved one, longer than the lease, and then continue."""
    RESTART_DATABASE = "database restart"
    NETWORK = "network fault"
    """The connections from checkout to the process are delayed, duplicated, cut or silent."""
    UNIMPLEMENTED = "unimplemented peer"
    """Another server, which implements none of the methods, answers instead of the process."""
    REFUSAL = "refusing peer"
    """Another server, which refuses every charge or shipment, answers instead; earlier requests arrive after it."""
    LATE = "late requests"
    """Requests to the process arrive when checkout has long given them up; meanwhile it cannot be reached."""
    FULL_DISK = "full disk"
    """The process cannot write to its database."""
    HUNG_DATABASE = "hung database"
    """Writes of the process to its database wait, as if the disk hung."""
    MAIL_RELAY = "mail relay fault"
    """The relay is slow, refuses temporarily, or hangs up after it has accepted a mail."""
    REFUSED_NOTIFICATIONS = "refused notifications"
    """The process permanently refuses to accept e-mails, or to remove ordered items from carts: dead letters."""
    REFUSED_RELEASES = "refused releases"
    """Shipping refuses every order, and the process permanently refuses to release their charges: orders to refund."""
    UNRESOLVED_SHIPMENTS = "unresolved shipments"
    """The process calls another shipping, which cannot resolve what it has shipped: orders to review."""
    OPERATORS = "operators"
    """Two operators settle the same orders at once while these are under way; the process dies when it settles one."""
    CLOCK = "clock jump"
    """The clock of the process's database jumps, and the process restarts; then the clock jumps back."""
    RELEASES = "two releases"
    """A later release runs beside this one, then alone; a replica of this release comes too late for its journal."""


_ALSO_HIT: Mapping[FaultKind, Sequence[str]] = {
    FaultKind.REFUSED_RELEASES: (SHIPPING,),
    # Operators who refund an order that payment does not release would have to refund it by hand.
    FaultKind.OPERATORS: ("payment", SHIPPING, DATABASE),
    FaultKind.CLOCK: (DATABASE,),
    FaultKind.RELEASES: ("checkout-1", "checkout-2", DATABASE),
}

LOOKAHEAD = 40
"""How many orders may begin before the next fault is due: enough for all customers to be busy."""

NETWORK_MODES: tuple[Mode, ...] = ("delay", "duplicate", "reset", "blackhole", "half-open")
RELAY_MODES: tuple[RelayMode, ...] = ("slow", "defer", "hang up")
RELAY = "mail relay"
CLOCKS = {"100 days ahead": 100 * 86_400.0, "an hour behind": -3_600.0}
_DETAILS: Mapping[FaultKind, Sequence[str]] = {
    FaultKind.NETWORK: NETWORK_MODES,
    FaultKind.MAIL_RELAY: RELAY_MODES,
    FaultKind.OPERATORS: (RESOLVE[1], *VOID[1:]),
    FaultKind.CLOCK: tuple(CLOCKS),
}
_SECONDS: Mapping[FaultKind, tuple[float, float]] = {
    # Longer than a lease.
    **dict.fromkeys((FaultKind.PAUSE, FaultKind.STALL, FaultKind.LATE), (1.5 * LEASE_SECONDS, 2.25 * LEASE_SECONDS)),
    # At most a little longer than a service waits.
    FaultKind.HUNG_DATABASE: (0.5, 5),
    **dict.fromkeys((FaultKind.NETWORK, FaultKind.MAIL_RELAY, FaultKind.UNIMPLEMENTED, FaultKind.FULL_DISK), (0.2, 2)),
    # At least until those that are cut off have reconnected and tried again.
    FaultKind.REFUSAL: (0.6, 2),
    **dict.fromkeys((FaultKind.CLOCK, FaultKind.RELEASES), (2, 4)),
}
"""The range of a fault's duration; of any other, up to a second."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one process.

    Attributes:
        after_orders: the fault begins once so many orders are finished.
        target: the name of the process.
        seconds: until the process is started again, resumed or reachable; of stalled workers, how long each of them
            stops before a charge.
        detail: the name of the failpoint, or what the network or the relay does.
    """

    after_orders: int
    kind: FaultKind
    target: str
    seconds: float
    detail: str = ""

    @property
    def processes(self) -> list[str]:
        """The processes that it hits, by name, in alphabetical order; no other fault hits them at the same time."""
        return sorted({self.target.removesuffix(internal_name("")), *_ALSO_HIT.get(self.kind, ())})


def fault_counts(orders: int, kills: int, database: Database, *, naive: bool) -> dict[FaultKind, int]:
    """Return the number of faults of each kind in a run; without kills there are no faults.

    Operators do not settle the orders of a naive checkout.
    """
    if not kills:
        return {}
    aimed, replaced, operators = kills // 3, orders // 150, 0 if naive else max(orders // 1_000, 1)
    journaled = 0 if naive else orders
    disks, restarts = (orders // 200, 0) if database == "sqlite" else (0, orders // 130)
    return {
        FaultKind.KILL: kills - aimed,
        FaultKind.KILL_AT_FAILPOINT: aimed,
        FaultKind.PAUSE: kills * 3 // 17,
        FaultKind.STALL: orders // 500,
        FaultKind.RESTART_DATABASE: restarts,
        FaultKind.NETWORK: orders // 100,
        FaultKind.MAIL_RELAY: orders // 200,
        FaultKind.UNIMPLEMENTED: replaced // 3,
        FaultKind.REFUSAL: replaced - replaced // 3,
        FaultKind.LATE: orders // 200,
        FaultKind.FULL_DISK: disks // 2,
        FaultKind.HUNG_DATABASE: disks - disks // 2,
        FaultKind.REFUSED_NOTIFICATIONS: 2 * operators,
        FaultKind.REFUSED_RELEASES: operators,
        FaultKind.UNRESOLVED_SHIPMENTS: operators,
        FaultKind.OPERATORS: journaled // 500,
        FaultKind.CLOCK: journaled // 200,
        FaultKind.RELEASES: journaled // 1_000,
    }


def plan_faults(
    seed: int,
    orders: int,
    counts: Mapping[FaultKind, int],
    targets: Mapping[FaultKind, Sequence[str]],
    failpoints: Mapping[str, Sequence[str]],
) -> list[Fault]:
    """Plan so many faults of each kind, evenly spaced over all orders but the last ones.

    Args:
        targets: what faults of each kind hit in turn, so that a short run has each of them.
        failpoints: of the processes that are killed at one.
    """
    rng = random.Random(f"faults {seed}")  # noqa: S311 - a schedule, not a secret
    kinds = [kind for kind in FaultKind for _ in range(counts.get(kind, 0))]
    rng.shuffle(kinds)
    in_turn = {kind: cycle(rng.sample(names, len(names))) for kind, names in targets.items() if names}
    plan = []
    for index, kind in enumerate(kinds):
        after_orders = (index + 1) * max(orders - LOOKAHEAD, orders // 2) // (len(kinds) + 1)
        target = next(in_turn[kind])
        details = failpoints[target] if kind is FaultKind.KILL_AT_FAILPOINT else _DETAILS.get(kind, ("",))
        seconds = round(rng.uniform(*_SECONDS.get(kind, (0, 1))), 3)
        plan.append(Fault(after_orders, kind, target, seconds, rng.choice(details)))
    return plan
