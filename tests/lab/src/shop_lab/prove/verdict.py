"""The verdict on a trial as JSON."""

from collections import Counter
from typing import Any, Literal

from shop_lab.prove.run import Trial, TrialResult
from shop_lab.world.invariants import InvariantResult

MAX_EXAMPLES = 50


Verdict = Literal["holds", "violated", "insufficient", "too slow"]

_SLOW_LAG_SECONDS = 0.05
_NEED_TIME = frozenset({"I2", "I4", "I7", "I9"})
"""The invariants that a machine without free CPU violates, because orders don't finish in time."""


def verdict(result: TrialResult, invariants: list[InvariantResult]) -> Verdict:
    """Return whether all invariants hold, were tested too rarely, or can't be judged on such a slow machine."""
    if violated := {invariant.name for invariant in invariants if not invariant.holds}:
        return "too slow" if violated <= _NEED_TIME and result.lag_seconds > _SLOW_LAG_SECONDS else "violated"
    return "holds" if all(exercise.is_sufficient for exercise in result.exercises) else "insufficient"


def to_json(trial: Trial, result: TrialResult, invariants: list[InvariantResult]) -> dict[str, Any]:
    """Return the trial's parameters, its faults, counts, what it exercised, and each invariant with some violations."""
    quiet_seconds = result.evidence.quiet_seconds
    return {
        "verdict": verdict(result, invariants),
        "orders": trial.orders,
        "seed": trial.seed,
        "database": trial.database,
        "naive": trial.naive,
        "faults": dict(sorted(result.fault_counts.items())),
        "outcomes": Counter(order.response.outcome.name.lower() for order in result.evidence.orders),
        "left_to_operators": sum(order.is_flagged for order in result.evidence.orders),
        "exercised": {
            exercise.name: {"count": exercise.count, "floor": exercise.floor} for exercise in result.exercises
        },
        "invariants": {
            invariant.name: {
                "rule": invariant.rule,
                "holds": invariant.holds,
                "violations": len(invariant.violations),
                "examples": invariant.violations[:MAX_EXAMPLES],
            }
            for invariant in invariants
        },
        "ordering_seconds": round(result.ordering_seconds, 1),
        "quiet_seconds": quiet_seconds and round(quiet_seconds, 1),
    }
