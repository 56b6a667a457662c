"""`shop prove`: place orders under faults and print which invariants held."""

import json
import time
from collections import Counter
from typing import Annotated, Any

import typer
from rich.markup import escape

from chassis.errors import Unavailable
from shop_cli.local.child_process import temporary_folder
from shop_cli.output.printing import console, counted, table
from shop_lab.prove import verdict
from shop_lab.prove.coverage import Exercise
from shop_lab.prove.fault_plan import fault_counts
from shop_lab.prove.run import Trial, run_trial
from shop_lab.world.invariants import InvariantResult, check_invariants
from shop_lab.world.shop_under_test import Database

_PROGRESS_SECONDS = 5.0
_VIOLATED = 1
_PRINTED_VIOLATIONS = 5
_VERDICTS = {
    "holds": "Every invariant holds",
    "violated": "Not every invariant holds",
    "insufficient": "Nothing is proven: too little happened",
    "too slow": "Nothing is proven: this machine is too slow to judge",
}


async def prove(
    *,
    orders: Annotated[int, typer.Option(min=1, help="Number of orders.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of customers and faults: the same seed gives the same plan.")] = 1,
    database: Annotated[Database, typer.Option(help="Database of payment and checkout.")] = "sqlite",
    kills: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default=False,
            help="Number of processes killed, a third of them at failpoints. Default: one per 40 orders. 0: no faults.",
        ),
    ] = None,
    naive: Annotated[
        bool,
        typer.Option(
            "--naive",
            help="Test a naive checkout without a journal instead, with customers who wait for each response. "
            "The invariants must not hold.",
        ),
    ] = False,
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option("--json", metavar="FILE", lazy=False, help="Write the verdict to this file, too."),
    ] = None,
) -> None:
    """Place orders while processes are killed, paused and restarted, then compare all ledgers.

    Exit status: 0 if every invariant holds, 1 if one does not or too little happened, 4 if this machine is too slow.
    """
    faults = fault_counts(orders, orders // 40 if kills is None else kills, database, naive=naive)
    trial = Trial(orders, seed, database, faults, naive=naive)
    console.print(f"[bold]{orders} orders, seed {seed}, {database}{', naive checkout' if naive else ''}")
    with temporary_folder("shop-prove-") as folder:
        result = await run_trial(trial, folder, Progress(orders))
        invariants = check_invariants(result.evidence)
        report = verdict.to_json(trial, result, invariants)
        _print(invariants, result.exercises, report)
        if json_file is not None:
            json_file.write(json.dumps(report, indent=2) + "\n")
        if report["verdict"] == "too slow":
            raise Unavailable("processes waited for a CPU", reason="TOO_SLOW")
    if report["verdict"] != "holds":
        raise typer.Exit(_VIOLATED)


class Progress:
    """Prints a line every five seconds, and one when all orders are finished."""

    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._started = self._printed = time.monotonic()

    def __call__(self, finished: int, fault_counts: Counter[str]) -> None:
        now = time.monotonic()
        if now - self._printed < _PROGRESS_SECONDS and finished < self._orders:
            return
        self._printed = now
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(fault_counts.items()))
        console.print(f"{now - self._started:6.1f} s  {finished:6d} of {self._orders} orders  {faults}", soft_wrap=True)


def _print(invariants: list[InvariantResult], exercises: list[Exercise], report: dict[str, Any]) -> None:
    rows = [
        (
            invariant.name,
            invariant.rule,
            "holds" if invariant.holds else counted(len(invariant.violations), "violation"),
        )
        for invariant in invariants
    ]
    console.print()
    console.print(table(["", "Invariant", "Verdict"], rows))
    for invariant in invariants:
        for violation in invariant.violations[:_PRINTED_VIOLATIONS]:
            console.print(f"  {invariant.name}: {escape(violation)}", soft_wrap=True)
    for exercise in exercises:
        if not exercise.is_sufficient:
            console.print(f"[bold]the run did not exercise {exercise.name}: {exercise.count} of {exercise.floor}")
    console.print(
        "exercised: " + ", ".join(f"{each.count} x {each.name} (at least {each.floor})" for each in exercises),
        soft_wrap=True,
    )
    console.print(f"\n{_VERDICTS[report['verdict']]} in {counted(report['orders'], 'order')}, seed {report['seed']}.")
