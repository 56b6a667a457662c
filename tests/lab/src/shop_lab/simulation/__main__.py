"""`python -m shop_lab.simulation` simulates random plans until one violates an invariant, and shrinks that one."""

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from shop_lab.simulation.plan import plan
from shop_lab.simulation.run import Report, run
from shop_lab.simulation.shrink import shrink

_stop: Event


@dataclass(frozen=True, slots=True)
class Search:
    """The result of a search: how many plans ran, and the report of the first that failed.

    `stranded` is the number of leases and due times that a clock, set back, has left far in the future.
    """

    runs: int
    stranded: int
    failed: Report | None


def search(first_seed: int, seconds: float, processes: int) -> Search:
    """Simulate the plans of consecutive seeds until one fails or the time is over."""
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, _set_stop, (context.Event(),)) as pool:
        workers = [(range(first_seed + number, 2**62, processes), seconds) for number in range(processes)]
        found = pool.starmap(_search_seeds, workers, chunksize=1)
    failed = next((search.failed for search in found if search.failed), None)
    return Search(sum(search.runs for search in found), sum(search.stranded for search in found), failed)


def _set_stop(stop: Event) -> None:
    global _stop  # noqa: PLW0603 - an event can only be inherited
    _stop = stop


def _search_seeds(seeds: Iterable[int], seconds: float) -> Search:
    """Simulate seeds until one fails, here or in another process, or the time is over."""
    until, stranded = time.monotonic() + seconds, 0
    for runs, seed in enumerate(seeds, 1):
        report = run(plan(seed))
        stranded += report.stranded
        if report.violations:
            _stop.set()
            return Search(runs, stranded, report)
        if time.monotonic() > until or _stop.is_set():
            return Search(runs, stranded, None)
    raise AssertionError("unreachable")


def main() -> int:
    """Parse the command line and return the exit status: 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to search")
    parser.add_argument("--seed", type=int, help="the first seed; by default a random one")
    parser.add_argument("--replay", action="store_true", help="run only this seed, and print what happens")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    if given.replay:
        return _show(run(plan(seed)))
    started = time.monotonic()
    found = search(seed, given.seconds, given.processes)
    seconds = time.monotonic() - started
    print(f"seeds from {seed}: {found.runs} runs in {seconds:.1f} s, {60 * found.runs / seconds:.0f} a minute")  # noqa: T201
    print(f"leases and due times left in the future by clocks set back: {found.stranded}")  # noqa: T201
    return 0 if found.failed is None else _show(shrink(found.failed))


def _show(report: Report) -> int:
    lines = [*report.trace, "", *report.plan.customers, *report.plan.faults, *report.injected]
    lines += [f"seed {report.plan.seed} on {report.plan.dialect}", *report.violations]
    print(*lines, sep="\n")  # noqa: T201
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
