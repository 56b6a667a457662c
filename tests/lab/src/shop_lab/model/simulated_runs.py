"""Runs of single orders in tests/lab/src/shop_lab/simulation, as steps of the model, and wrong ones."""

import json
import subprocess
import sys
from collections import Counter

from rich.console import Console

from shop_lab.model.tlc import Step

SEED = 1
SIMULATIONS = 300

LONGEST = 300
"""How many orders TLC checks at most: of each distinct sequence of actions one, those with the most steps first."""

ACTIONS = (
    "Charge", "Delay", "Deliver", "Die", "FailOver", "Insert", "Replicate", "Resolve", "ResolveShipment", "Ship",
    "Restore", "Update", "Void", "claim_expired", "reopen", "take_over",
)  # fmt: skip
WRONG_RUNS = ("a step left out", "two steps exchanged", "a charge under another attempt")
CONSOLE = Console(highlight=False, soft_wrap=True)


def simulate_runs() -> list[list[Step]]:
    """Simulate the shop and return the steps of its most eventful orders. Raise if an action never occurs."""
    command = [sys.executable, "-m", "shop_lab.simulation", "--record", str(SIMULATIONS), "--seed", str(SEED)]
    recorded = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    by_actions = {tuple(step["action"] for step in run): run for run in recorded["runs"]}
    runs = sorted(by_actions.values(), key=len)[-LONGEST:]
    counts = Counter(step["action"] for run in runs for step in run)
    CONSOLE.print(
        f"{SIMULATIONS} simulated runs: {len(recorded['runs'])} orders, {len(recorded['left_out'])} not in the model; "
        f"{len(runs)} are checked, with {counts.total():,} steps"
    )
    if missing := set(ACTIONS) - counts.keys():
        raise RuntimeError(f"no simulated run has {', '.join(sorted(missing))}")
    return runs


def wrong_runs(runs: list[list[Step]]) -> dict[str, list[list[Step]]]:
    """Return a run that the model must reject for each of WRONG_RUNS."""
    run = next(run for run in runs if [step["action"] for step in run[:3]] == ["Insert", "Charge", "Ship"])
    moved = json.loads(json.dumps(run))
    for step in moved[1:]:
        step["view"]["charges"].reverse()
    wrong = ([*run[:1], *run[2:]], [run[0], run[2], run[1], *run[3:]], moved)
    return {name: [steps] for name, steps in zip(WRONG_RUNS, wrong, strict=True)}
