"""A run must do often enough what it claims to prove."""

from collections.abc import Mapping

import pytest

from shop_cli.prove.coverage import (
    DEATHS_AT_FAILPOINTS,
    FENCES,
    FLOORS_PER_1000_ORDERS,
    LAGGING_FAILOVERS,
    TAKEOVERS,
    compare_with_floors,
)
from shop_cli.prove.fault_plan import FaultKind

PLANNED = {FaultKind.KILL_AT_FAILPOINT: 9, FaultKind.FAILOVER: 6}
SUFFICIENT = {name: int(10 * floor) for name, floor in FLOORS_PER_1000_ORDERS.items()} | {
    DEATHS_AT_FAILPOINTS: 3,
    LAGGING_FAILOVERS: 2,
}


def insufficient(orders: int, counts: Mapping[str, int]) -> set[str]:
    exercises = compare_with_floors(orders, counts, PLANNED, {(FaultKind.KILL, "email"): 1})
    return {exercise.name for exercise in exercises if not exercise.is_sufficient}


def test_a_run_at_its_floors_is_sufficient() -> None:
    assert insufficient(10_000, SUFFICIENT) == set()


@pytest.mark.parametrize("name", [TAKEOVERS, FENCES, DEATHS_AT_FAILPOINTS, LAGGING_FAILOVERS])
def test_a_run_below_a_floor_is_not_sufficient(name: str) -> None:
    assert insufficient(10_000, {**SUFFICIENT, name: SUFFICIENT[name] - 1}) == {name}


def test_the_floors_grow_with_the_number_of_orders() -> None:
    assert TAKEOVERS not in insufficient(10, {})
    assert TAKEOVERS in insufficient(20_000, SUFFICIENT)


def test_the_injected_faults_are_reported_by_target() -> None:
    (exercise,) = (each for each in compare_with_floors(1, {}, {}, {(FaultKind.KILL, "email"): 4}) if each.count)
    assert (exercise.name, exercise.count) == ("kill of email", 4)
