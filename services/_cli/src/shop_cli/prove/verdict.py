"""The verdict on a trial as JSON."""

from typing import Any

from shop_cli.prove.fault_plan import FaultKind
from shop_cli.prove.invariants import InvariantResult, summary_counts
from shop_cli.prove.run import Trial, TrialResult

MAX_EXAMPLES = 5


def to_json(trial: Trial, result: TrialResult, invariants: list[InvariantResult]) -> dict[str, Any]:
    """Return the trial's parameters, the injected faults, summary counts and each invariant with some violations."""
    quiet_seconds = result.evidence.quiet_seconds
    return {
        "verdict": "holds" if all(invariant.holds for invariant in invariants) else "violated",
        "orders": trial.orders,
        "seed": trial.seed,
        "database": trial.database,
        "naive": trial.naive,
        "faults": dict(sorted(result.fault_counts.items())),
        **({"replication": trial.replication} if trial.faults.get(FaultKind.FAILOVER) else {}),
        "lagging_failovers": result.lagging_failovers,
        "counts": summary_counts(result.evidence),
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
