"""`python -m shop_lab.simulation` simulates random plans until one violates an invariant, and shrinks that one."""

import argparse
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from typing import Any

from shop_lab.simulation.model_runs import record_orders
from shop_lab.simulation.plan import Scope, plan
from shop_lab.simulation.run import Report, run
from shop_lab.simulation.shrink import shrink

LEAVE_OUT: dict[str, dict[str, Any]] = {
    "rivals": {"rivals": False},
    "refusals": {"refused_paths": ()},
    "lost-commits": {"lost_commits": False},
    "late-lines": {"late_lines": False},
    "clock-jumps": {"clock_jumps": False},
}

_stop: Event


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search: how many plans ran, and the report of the first that failed.

    `stranded` is the number of leases and due times that a clock, set back, has left far in the future.
    """

    runs: int
    stranded: int
    seconds: float
    failed: Report | None


def search(scope: Scope, first_seed: int, seconds: float, processes: int) -> Search:
    """Simulate the plans of consecutive seeds until one fails or the time is over."""
    started = time.monotonic()
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    with context.Pool(processes, _set_stop, (stop,)) as pool:
        workers = [(scope, range(first_seed + number, 2**62, processes), seconds) for number in range(processes)]
        found = pool.starmap(_search_seeds, workers, chunksize=1)
    runs, stranded = sum(each.runs for each in found), sum(each.stranded for each in found)
    failed = next((each.failed for each in found if each.failed), None)
    return Search(runs, stranded, time.monotonic() - started, failed)


def _set_stop(stop: Event) -> None:
    global _stop  # noqa: PLW0603 - an event can only be inherited
    _stop = stop


def _search_seeds(scope: Scope, seeds: Iterable[int], seconds: float) -> Search:
    """Simulate seeds until one fails, here or in another process, or the time is over."""
    started, stranded = time.monotonic(), 0
    for runs, seed in enumerate(seeds, 1):
        report = run(plan(seed, scope))
        stranded += report.stranded
        spent = time.monotonic() - started
        if report.violations:
            _stop.set()
            return Search(runs, stranded, spent, report)
        if spent > seconds or _stop.is_set():
            return Search(runs, stranded, spent, None)
    raise AssertionError("unreachable")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and return the exit status: 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to search")
    parser.add_argument("--seed", type=int, help="the first seed; by default a random one")
    parser.add_argument("--replay", action="store_true", help="run only this seed, and print what happens")
    parser.add_argument("--record", type=int, metavar="RUNS", help="print the steps of so many runs' orders as JSON")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--leave-out", nargs="*", default=[], choices=LEAVE_OUT, help="kinds of events not to plan")
    given = parser.parse_args(arguments)
    changes = {name: value for each in given.leave_out for name, value in LEAVE_OUT[each].items()}
    scope = Scope(**changes)
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    if given.replay:
        return _show(run(plan(seed, scope)))
    if given.record:
        return _record(range(seed, seed + given.record))
    found = search(scope, seed, given.seconds, given.processes)
    rate = 60 * found.runs / found.seconds
    print(f"seeds from {seed}: {found.runs} runs in {found.seconds:.1f} s, {rate:.0f} a minute")  # noqa: T201
    print(f"leases and due times left in the future by clocks set back: {found.stranded}")  # noqa: T201
    return 0 if found.failed is None else _show(shrink(found.failed))


def _record(seeds: range) -> int:
    runs, left_out = record_orders(seeds)
    sys.stdout.write(json.dumps({"runs": runs, "left_out": left_out}))
    return 0


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
