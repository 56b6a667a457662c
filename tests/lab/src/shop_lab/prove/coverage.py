"""How often a run exercised what it claims to prove: a run that did something too rarely proves nothing about it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shop_kit.databases import execute
from shop_lab.prove.fault_plan import SHIPPING, Fault, FaultKind
from shop_lab.world.shop_under_test import ShopUnderTest

TAKEOVERS = "takeovers"
FENCES = "fences"
VOIDS = "voids"
REPLAYS = "replayed responses"
STALE_WRITES = "stale writes rejected"
DEAD_LETTERS = "orders with dead letters"
REFUNDS = "orders that need a refund"
REVIEWS = "orders that need a review"
SETTLEMENTS = "decisions of operators"
UPGRADES = "protocol numbers raised in time"
DEATHS_AT_FAILPOINTS = "deaths at failpoints"

STALE_WRITE_MESSAGE = b"stale update rejected"
"""What checkout logs when a worker that no longer owns an order tries to update it."""

FLOORS_PER_1000_ORDERS: Mapping[str, float] = {TAKEOVERS: 10, FENCES: 4, REPLAYS: 100}
FLOORS_PER_FAULT: Mapping[str, tuple[FaultKind, int]] = {
    STALE_WRITES: (FaultKind.STALL, 1),
    DEAD_LETTERS: (FaultKind.REFUSED_NOTIFICATIONS, 2),
    REFUNDS: (FaultKind.REFUSED_RELEASES, 2),
    REVIEWS: (FaultKind.UNRESOLVED_SHIPMENTS, 1),
    SETTLEMENTS: (FaultKind.OPERATORS, 1),
    UPGRADES: (FaultKind.RELEASES, 1),
}
"""For every second planned fault: towards the end of a run no order may be left for one."""

_STEPS = "SELECT step, count(*) FROM order_events GROUP BY step"
_STATES = "SELECT state, count(*) FROM orders GROUP BY state"
_DEAD = "SELECT count(DISTINCT order_id) FROM order_events WHERE step LIKE '%dead_letter'"
_ENTRIES = "SELECT state, count(*) FROM charges GROUP BY state"


@dataclass(frozen=True, slots=True)
class Exercise:
    """How often a run exercised something, and the least that it must."""

    name: str
    count: int
    floor: int

    @property
    def is_sufficient(self) -> bool:
        return self.count >= self.floor


def count_exercises(shop: ShopUnderTest, replays: int) -> Counter[str]:
    """Count what a shop did, by the names of this module. Read its databases and logs.

    Args:
        shop: under test, with all orders finished.
        replays: the number of responses that were marked as replayed.
    """
    steps, states = dict(execute(shop.urls["checkout"], _STEPS)), dict(execute(shop.urls["checkout"], _STATES))
    ((dead,),) = execute(shop.urls["checkout"], _DEAD)
    entries = dict(execute(shop.urls["payment"], _ENTRIES))
    logs = [shop.processes[name].log_path.read_bytes() for name in shop.checkouts]
    return Counter(
        {
            TAKEOVERS: steps.get("taken_over", 0),
            FENCES: entries.get("FENCED", 0),
            VOIDS: entries.get("VOIDED", 0),
            REPLAYS: replays,
            STALE_WRITES: sum(log.count(STALE_WRITE_MESSAGE) for log in logs),
            DEAD_LETTERS: dead,
            REFUNDS: states.get("NEEDS_REFUND", 0),
            REVIEWS: states.get("NEEDS_REVIEW", 0),
            SETTLEMENTS: sum(steps.get(f"settle{end}", 0) for end in ("d_refunded", "d_shipped", "ment_refused")),
        }
    )


def floors_of(orders: int, plan: Sequence[Fault]) -> dict[str, int]:
    """Return the least that a run must exercise, by the names of this module; nothing in a run of few orders."""
    kinds = Counter(fault.kind for fault in plan)
    refusals = sum(fault.kind is FaultKind.REFUSAL and fault.target == SHIPPING for fault in plan)
    return {
        **{name: int(floor * orders / 1_000) for name, floor in FLOORS_PER_1000_ORDERS.items()},
        # Not every fault of these kinds has its effect: a failpoint may not be reached.
        DEATHS_AT_FAILPOINTS: kinds[FaultKind.KILL_AT_FAILPOINT] // 6,
        **{name: kinds[kind] // 2 * floor for name, (kind, floor) in FLOORS_PER_FAULT.items()},
        VOIDS: (refusals + 5) // 6,
    }


def compare_with_floors(orders: int, counts: Mapping[str, int], plan: Sequence[Fault]) -> list[Exercise]:
    """Compare the counts of what a run exercised, by the names of this module, with the least that it must."""
    return [Exercise(name, counts.get(name, 0), floor) for name, floor in floors_of(orders, plan).items()]
