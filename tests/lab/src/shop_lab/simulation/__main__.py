"""`python -m shop_lab.simulation` simulates orders under random faults on all cores until an invariant is violated."""

import argparse
import multiprocessing
import sys
import time
from multiprocessing.connection import wait

from shop_lab.simulation.machine import simulate

_BATCH = 100


def _search(seconds: float) -> None:
    """Simulate until an invariant is violated, which raises an error with the shortest steps, or the time is over."""
    until, runs = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        simulate(_BATCH)
        runs += _BATCH
    print(f"{runs} runs without a violation")  # noqa: T201


def main() -> int:
    """Search in one process per core; return 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to search")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    workers = [multiprocessing.Process(target=_search, args=[given.seconds]) for _ in range(given.processes)]
    for worker in workers:
        worker.start()
    while running := [worker for worker in workers if worker.exitcode is None]:
        wait([worker.sentinel for worker in running])
        if any(worker.exitcode for worker in workers):
            for worker in running:
                worker.terminate()
    return int(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    sys.exit(main())
