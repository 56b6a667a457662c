"""`shop prove`: place orders under faults and print which invariants held."""

import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from shop_cli.commands.options import async_command
from shop_cli.output.printing import console, counted, table
from shop_lab.prove import verdict
from shop_lab.prove.coverage import Exercise
from shop_lab.prove.fault_plan import FaultKind
from shop_lab.prove.run import Trial, run_trial
from shop_lab.world.invariants import InvariantResult, check_invariants
from shop_lab.world.postgres_cluster import Replication
from shop_lab.world.shop_under_test import Database

_PROGRESS_SECONDS = 5.0
_VIOLATED = 1
_PRINTED_VIOLATIONS = 5
# 15 % of the kills and pauses together are pauses.
_PAUSES_PER_KILL = 15 / 85
_AIMED_SHARE = 1 / 3
_VERDICTS = {
    "holds": "Every invariant holds",
    "violated": "Not every invariant holds",
    "insufficient": "Nothing is proven: too little happened",
}


def _number(text: str) -> Any:
    """Return an option for how often something is done; the text says the default."""
    return typer.Option(min=0, show_default=False, help=f"Number of {text}")


@async_command
async def prove(
    *,
    orders: Annotated[int, typer.Option(min=1, help="Number of orders.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of customers and faults: the same seed gives the same plan.")] = 1,
    database: Annotated[Database, typer.Option(help="Database of payment and checkout.")] = "sqlite",
    kills: Annotated[
        int | None, _number("processes killed (SIGKILL), a third of them at failpoints. Default: one per 40 orders.")
    ] = None,
    pauses: Annotated[
        int | None, _number("pauses (SIGSTOP) longer than checkout's lease. Default: 3 per 17 kills.")
    ] = None,
    stalls: Annotated[
        int | None, _number("times that checkout's workers stop longer than their lease. Default: one per 500 orders.")
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Number of times that PostgreSQL is killed and started again.")
    ] = 15,
    failovers: Annotated[
        int,
        typer.Option(
            min=0, help="Number of times that PostgreSQL's primary is killed and one of its two standbys is promoted."
        ),
    ] = 0,
    replication: Annotated[
        Replication,
        typer.Option(
            help="Replication to the standbys. With async a failover loses acknowledged writes of the journal."
        ),
    ] = "sync",
    network: Annotated[
        int | None,
        _number("times that connections are delayed, duplicated, cut or silent. Default: one per 100 orders."),
    ] = None,
    replaced: Annotated[
        int | None,
        _number("times that a peer implements nothing, or refuses every order. Default: one per 150 orders."),
    ] = None,
    late: Annotated[
        int | None, _number("times that requests arrive long after checkout gave them up. Default: one per 200 orders.")
    ] = None,
    disks: Annotated[
        int | None, _number("times that a SQLite database is full or hangs. Default: one per 200 orders.")
    ] = None,
    relay: Annotated[
        int | None, _number("times that the mail relay is slow, refuses or hangs up. Default: one per 200 orders.")
    ] = None,
    operators: Annotated[
        int | None,
        _number(
            "times that a peer refuses what only operators can settle: half of them dead letters, a quarter orders to"
            " refund, a quarter orders to review. Default: 4 per full 1,000 orders."
        ),
    ] = None,
    naive: Annotated[
        bool,
        typer.Option("--naive", help="Test a naive checkout without a journal instead. The invariants must not hold."),
    ] = False,
    patient: Annotated[
        bool, typer.Option("--patient", help="Customers wait for each response and place one order at a time.")
    ] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Services speak mutual TLS.")] = False,
    json_file: Annotated[
        typer.FileTextWrite | None,
        typer.Option("--json", metavar="FILE", lazy=False, help="Write the verdict to this file, too."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="Empty folder for all data and logs. Default: a temporary folder, removed at the end.",
        ),
    ] = None,
) -> None:
    """Place orders while processes are killed, paused and restarted, then compare all ledgers.

    Exit status: 0 if every invariant holds, 1 if one does not, or if the run exercised too little to prove it.
    """
    if failovers and database != "postgres":
        raise typer.BadParameter("only PostgreSQL has standbys: add --database postgres", param_hint="--failovers")
    kills = orders // 40 if kills is None else kills
    replaced = orders // 150 if replaced is None else replaced
    disks = (orders // 200 if disks is None else disks) if database == "sqlite" else 0
    operators = orders // 1_000 * 4 if operators is None else operators
    aimed = round(kills * _AIMED_SHARE)
    faults = {
        FaultKind.KILL: kills - aimed,
        FaultKind.KILL_AT_FAILPOINT: aimed,
        FaultKind.PAUSE: round(kills * _PAUSES_PER_KILL) if pauses is None else pauses,
        FaultKind.STALL: orders // 500 if stalls is None else stalls,
        FaultKind.RESTART_DATABASE: restarts if database == "postgres" else 0,
        FaultKind.FAILOVER: failovers,
        FaultKind.NETWORK: orders // 100 if network is None else network,
        FaultKind.MAIL_RELAY: orders // 200 if relay is None else relay,
        FaultKind.UNIMPLEMENTED: replaced // 3,
        FaultKind.REFUSAL: replaced - replaced // 3,
        FaultKind.LATE: orders // 200 if late is None else late,
        FaultKind.FULL_DISK: disks // 2,
        FaultKind.HUNG_DATABASE: disks - disks // 2,
        FaultKind.REFUSED_NOTIFICATIONS: operators - operators // 4 * 2,
        FaultKind.REFUSED_RELEASES: operators // 4,
        FaultKind.UNRESOLVED_SHIPMENTS: operators // 4,
    }
    trial = Trial(orders, seed, database, faults, naive=naive, patient=patient, replication=replication, tls=tls)
    console.print(f"[bold]{orders} orders, seed {seed}, {database}{', naive checkout' if naive else ''}")
    with tempfile.TemporaryDirectory(prefix="shop-prove-", ignore_cleanup_errors=True) as temporary:
        result = await run_trial(trial, folder or Path(temporary), Progress(orders))
    invariants = check_invariants(result.evidence)
    report = verdict.to_json(trial, result, invariants)
    _print(invariants, result.exercises, report)
    if json_file is not None:
        json_file.write(json.dumps(report, indent=2) + "\n")
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
        elif not exercise.count:
            console.print(f"not exercised: {exercise.name}")
    console.print(f"\n{_VERDICTS[report['verdict']]} in {counted(report['orders'], 'order')}, seed {report['seed']}.")
