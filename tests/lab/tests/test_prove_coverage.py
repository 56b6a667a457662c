"""A run must do often enough what it claims to prove."""

from collections import Counter
from collections.abc import Mapping

import pytest

from shop_lab.prove.coverage import DEAD_LETTERS, FENCES, TAKEOVERS, VOIDS, compare_with_floors, floors_of
from shop_lab.prove.fault_plan import Fault, FaultKind
from shop_lab.prove.run import TrialResult
from shop_lab.prove.verdict import verdict
from shop_lab.world.evidence import Evidence
from shop_lab.world.invariants import InvariantResult

ORDERS = 10_000
PLAN = [Fault(0, kind, "shipping", 0) for kind in FaultKind for _ in range(12)]
SUFFICIENT = floors_of(ORDERS, PLAN)


def insufficient(counts: Mapping[str, int]) -> set[str]:
    exercises = compare_with_floors(ORDERS, counts, PLAN)
    result = TrialResult(Evidence(()), Counter(), exercises, 1.0)
    names = {exercise.name for exercise in exercises if not exercise.is_sufficient}
    assert verdict(result, [InvariantResult("I1", "", ())]) == ("insufficient" if names else "holds")
    return names


def test_a_run_at_its_floors_is_sufficient() -> None:
    assert insufficient(SUFFICIENT) == set()
    assert SUFFICIENT.items() >= {TAKEOVERS: 100, FENCES: 40, VOIDS: 2, DEAD_LETTERS: 12}.items()


@pytest.mark.parametrize("name", SUFFICIENT)
def test_a_run_below_a_floor_is_not_sufficient(name: str) -> None:
    assert insufficient({**SUFFICIENT, name: SUFFICIENT[name] - 1}) == {name}


@pytest.mark.parametrize(("violated", "expected"), [("I9", "too slow"), ("I1", "violated")])
def test_a_slow_machine_explains_late_orders_and_no_second_charge(violated: str, expected: str) -> None:
    result = TrialResult(Evidence(()), Counter(), [], 1.0, lag_seconds=1.0)
    assert verdict(result, [InvariantResult(violated, "", ("o-1",))]) == expected
