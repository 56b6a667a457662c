"""A run must do often enough what it claims to prove."""

from collections import Counter
from collections.abc import Mapping

import pytest

from shop_lab.prove.coverage import (
    DEAD_LETTERS,
    DEATHS_AT_FAILPOINTS,
    FENCES,
    FLOORS_PER_1000_ORDERS,
    LAGGING_FAILOVERS,
    REFUNDS,
    REVIEWS,
    TAKEOVERS,
    VOIDS,
    compare_with_floors,
)
from shop_lab.prove.fault_plan import Fault, FaultKind

PLAN = [
    Fault(0, kind, target, 0)
    for kind, target, count in (
        (FaultKind.KILL_AT_FAILPOINT, "checkout", 18),
        (FaultKind.FAILOVER, "postgres", 12),
        (FaultKind.REFUSAL, "shipping", 6),
        (FaultKind.REFUSED_NOTIFICATIONS, "email", 3),
        (FaultKind.REFUSED_RELEASES, "payment-internal", 2),
        (FaultKind.UNRESOLVED_SHIPMENTS, "checkout", 1),
    )
    for _ in range(count)
]
INJECTED = Counter((fault.kind, fault.target) for fault in PLAN)
SUFFICIENT = {name: int(10 * floor) for name, floor in FLOORS_PER_1000_ORDERS.items()} | {
    DEATHS_AT_FAILPOINTS: 3,
    LAGGING_FAILOVERS: 2,
    VOIDS: 1,
    DEAD_LETTERS: 4,
    REFUNDS: 2,
    REVIEWS: 1,
}


def insufficient(orders: int, counts: Mapping[str, int], injected: Mapping[tuple[FaultKind, str], int]) -> set[str]:
    exercises = compare_with_floors(orders, counts, PLAN, injected)
    return {exercise.name for exercise in exercises if not exercise.is_sufficient}


def test_a_run_at_its_floors_is_sufficient() -> None:
    assert insufficient(10_000, SUFFICIENT, INJECTED) == set()


@pytest.mark.parametrize(
    "name",
    [TAKEOVERS, FENCES, DEATHS_AT_FAILPOINTS, LAGGING_FAILOVERS, VOIDS, DEAD_LETTERS, REFUNDS, REVIEWS],
)
def test_a_run_below_a_floor_is_not_sufficient(name: str) -> None:
    assert insufficient(10_000, {**SUFFICIENT, name: SUFFICIENT[name] - 1}, INJECTED) == {name}


def test_the_floors_grow_with_the_number_of_orders() -> None:
    assert TAKEOVERS not in insufficient(10, {}, INJECTED)
    assert TAKEOVERS in insufficient(20_000, SUFFICIENT, INJECTED)


def test_a_run_without_all_planned_faults_is_not_sufficient() -> None:
    injected = {**INJECTED, (FaultKind.FAILOVER, "postgres"): 11}
    assert insufficient(10_000, SUFFICIENT, injected) == {"failover of postgres"}
