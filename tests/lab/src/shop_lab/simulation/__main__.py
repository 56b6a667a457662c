"""`python -m shop_lab.simulation` simulates orders under random faults on all cores until an invariant is violated."""

import argparse
import multiprocessing
import time

from shop_lab.simulation.machine import simulate

_BATCH = 100


def _search(seconds: float) -> int:
    """Simulate for so many seconds, and return the number of runs. Raise an error as `simulate` does."""
    until, runs = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        simulate(_BATCH)
        runs += _BATCH
    return runs


def main() -> None:
    """Search in one process per core. Raise the error of the first violation."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to search")
    given = parser.parse_args()
    cores = multiprocessing.cpu_count()
    with multiprocessing.Pool(cores) as pool:
        runs = sum(pool.imap_unordered(_search, [given.seconds] * cores))
    print(f"{runs} runs without a violation")  # noqa: T201


if __name__ == "__main__":
    main()
