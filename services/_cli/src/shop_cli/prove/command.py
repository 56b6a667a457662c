"""`shop prove`: orders under faults, and the table of what held."""

import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from shop_cli.clients import synchronous
from shop_cli.output import console, table
from shop_cli.prove.invariants import Finding, counted, judge
from shop_cli.prove.run import Outcome, Trial
from shop_cli.prove.run import prove as run_trial
from shop_cli.prove.stage import Database

_PROGRESS_SECONDS = 5.0
_SHOWN = 5
_VIOLATED = 1
_PAUSES_PER_KILL = 15 / 85
"""Pauses are 15 % of both together."""

Orders = Annotated[int, typer.Option(min=1, help="How many orders customers want.")]
Seed = Annotated[int, typer.Option(help="Of customers and faults: the same seed, the same plan.")]
Kills = Annotated[int | None, typer.Option(min=0, help="How many kill -9; one for 40 orders unless given.")]
Pauses = Annotated[int | None, typer.Option(min=0, help="How many pauses (SIGSTOP) longer than a lease.")]
Restarts = Annotated[int, typer.Option(min=0, help="How many immediate restarts of PostgreSQL.")]
Naive = Annotated[bool, typer.Option("--naive", help="Prove the control instead, a checkout that keeps no record.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the verdict there, too.")]
Folder = Annotated[Path | None, typer.Option(help="Keep all data and logs in this empty folder.")]


@synchronous
async def prove(
    *,
    orders: Orders = 2_000,
    seed: Seed = 1,
    database: Annotated[Database, typer.Option(help="Of payment and checkout.")] = "sqlite",
    kills: Kills = None,
    pauses: Pauses = None,
    restarts: Restarts = 15,
    naive: Naive = False,
    json_file: JsonFile = None,
    folder: Folder = None,
) -> None:
    """Let customers order while processes are killed, paused and restarted, then compare all ledgers.

    Exit status: 0 when every invariant holds, 1 when one does not.
    """
    kills = orders // 40 if kills is None else kills
    pauses = round(kills * _PAUSES_PER_KILL) if pauses is None else pauses
    trial = Trial(orders, seed, database, kills, pauses, restarts, naive=naive)
    console.print(f"[bold]{orders} orders, seed {seed}, {database}{', the naive control' if naive else ''}")
    with tempfile.TemporaryDirectory(prefix="shop-prove-", ignore_cleanup_errors=True) as temporary:
        outcome = await run_trial(trial, folder or Path(temporary), Progress(orders))
    if not _tell(trial, outcome, json_file):
        raise typer.Exit(_VIOLATED)


def _tell(trial: Trial, outcome: Outcome, json_file: Path | None) -> bool:
    findings = judge(outcome.evidence)
    verdict = to_verdict(trial, outcome, findings)
    _print(findings, verdict)
    if json_file is not None:
        json_file.write_text(json.dumps(verdict, indent=2) + "\n", encoding="utf-8")
    return all(finding.holds for finding in findings)


class Progress:
    """Prints a line now and then."""

    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._started = self._printed = time.monotonic()

    def __call__(self, finished: int, done: Counter[str]) -> None:
        """Say how far it is, unless that was said just now."""
        now = time.monotonic()
        if now - self._printed < _PROGRESS_SECONDS and finished < self._orders:
            return
        self._printed = now
        harm = ", ".join(f"{count} x {name}" for name, count in sorted(done.items()))
        console.print(f"{now - self._started:6.1f} s  {finished:6d} of {self._orders} orders  {harm}")


def to_verdict(trial: Trial, outcome: Outcome, findings: list[Finding]) -> dict[str, Any]:
    """All that came out, as JSON."""
    return {
        "verdict": "holds" if all(finding.holds for finding in findings) else "violated",
        "orders": trial.orders,
        "seed": trial.seed,
        "database": trial.database,
        "naive": trial.naive,
        "done": dict(sorted(outcome.done.items())),
        "counts": counted(outcome.evidence),
        "invariants": {
            finding.name: {
                "rule": finding.rule,
                "holds": finding.holds,
                "violations": len(finding.violations),
                "examples": finding.violations[:_SHOWN],
            }
            for finding in findings
        },
        "ordering_seconds": round(outcome.ordering_seconds, 1),
        "quiet_seconds": outcome.evidence.quiet_seconds and round(outcome.evidence.quiet_seconds, 1),
    }


def _print(findings: list[Finding], verdict: dict[str, Any]) -> None:
    rows = [
        (finding.name, finding.rule, "holds" if finding.holds else f"{len(finding.violations)} violations")
        for finding in findings
    ]
    console.print()
    console.print(table(["", "Invariant", "Verdict"], rows))
    for finding in findings:
        for violation in finding.violations[:_SHOWN]:
            console.print(f"  {finding.name}: {escape(violation)}", soft_wrap=True)
    console.print()
    console.out(json.dumps({name: verdict[name] for name in verdict if name != "invariants"}), highlight=False)
