"""`python tests/simulation` simulates random plans until one violates an invariant, and shrinks that one."""

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from simulation.plan import Scope, plan
from simulation.run import Report, run
from simulation.shrink import shrink

_CHUNK = 8
LEAVE_OUT = {
    "rivals": {"rivals": False},
    "refusals": {"refused_paths": ()},
    "lost-commits": {"lost_commits": False},
    "late-lines": {"late_lines": False},
}


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search: how many plans ran, and the report of the first that failed."""

    runs: int
    seconds: float
    failed: Report | None


def search(scope: Scope, first_seed: int, seconds: float, processes: int) -> Search:
    """Simulate the plans of consecutive seeds until one fails or the time is over."""
    started = time.monotonic()
    runs = 0
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for report in pool.imap(partial(_run_seed, scope), _seeds(first_seed, started + seconds), chunksize=_CHUNK):
            runs += 1
            if report is not None:
                return Search(runs, time.monotonic() - started, report)
    return Search(runs, time.monotonic() - started, None)


def _seeds(first: int, until: float) -> Iterator[int]:
    seed = first
    while time.monotonic() < until:
        yield seed
        seed += 1


def _run_seed(scope: Scope, seed: int) -> Report | None:
    report = run(plan(seed, scope))
    return report if report.violations else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and return the exit status: 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python tests/simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to search")
    parser.add_argument("--seed", type=int, help="the first seed; by default a random one")
    parser.add_argument("--replay", action="store_true", help="run only this seed, and print what happens")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--leave-out", nargs="*", default=[], choices=LEAVE_OUT, help="kinds of events not to plan")
    given = parser.parse_args(arguments)
    changes = {name: value for each in given.leave_out for name, value in LEAVE_OUT[each].items()}
    scope = Scope(**changes)
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    if given.replay:
        return _show(run(plan(seed, scope)))
    found = search(scope, seed, given.seconds, given.processes)
    rate = 60 * found.runs / found.seconds
    print(f"seeds from {seed}: {found.runs} runs in {found.seconds:.1f} s, {rate:.0f} a minute")  # noqa: T201
    return 0 if found.failed is None else _show(shrink(found.failed))


def _show(report: Report) -> int:
    write = sys.stdout.write
    write("\n".join(report.trace) + "\n\n")
    for shopper in report.plan.shoppers:
        write(f"{shopper}\n")
    for fault in (*report.plan.faults, *report.injected):
        write(f"{fault}\n")
    write(f"seed {report.plan.seed} on {report.plan.dialect}\n")
    write("".join(f"{violation}\n" for violation in report.violations))
    return 1 if report.violations else 0
