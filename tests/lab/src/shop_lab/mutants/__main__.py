"""`python -m shop_lab.mutants` removes each safety device in a copy of the repository: its fast tests must then fail.

With `--simulate` the simulation searches each copy for a violation as well. With `--prove` five seeds of `shop prove`
run on each copy instead, all of which must find a violation, and none in a copy that has all devices.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from shop_lab.mutants.copies import Copy, copy_repository
from shop_lab.mutants.devices import DEVICES, Device
from shop_lab.mutants.prove_runs import CONTROL, ResultsFile, control_options, prove_with_all_seeds, row

_FAILED = 1


def fails(copy: Copy, tests: Iterable[str]) -> bool:
    """Return whether one of the tests fails, or hangs; a test that cannot even run is an error."""
    status = copy.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
    if status not in {0, _FAILED, None}:
        raise RuntimeError(f"pytest ended with status {status}: {' '.join(tests)}")
    return status != 0


def check_with_tests(copy: Copy, devices: Sequence[Device], simulate_seconds: float) -> bool:
    """Print a line for each device. Return whether each is caught by a fast test."""
    if fails(copy, sorted({device.test_id for device in devices})):
        print("the tests fail without any mutation", file=sys.stderr)  # noqa: T201
        return False
    missed = 0
    for device in devices:
        with copy.without(device):
            caught = fails(copy, [device.test_id])
            cells = ["fast test fails" if caught else "NOT CAUGHT"]
            if simulate_seconds:
                search = ("-m", "shop_lab.simulation", "--seconds", str(simulate_seconds), "--seed", "0")
                cells.append("simulation fails" if copy.run(*search) == _FAILED else "-")
        missed += not caught
        _print_row(device.name, " | ".join(cells))
    return missed == 0


def check_with_prove(copy: Copy, devices: Sequence[Device], results: ResultsFile, jobs: int) -> bool:
    """Print a line for each device, and each set of options. Return whether all runs have the expected verdict."""
    unexpected = 0
    for options in control_options(devices):
        runs = prove_with_all_seeds(copy, CONTROL, options, results, jobs)
        unexpected += any(run.is_caught for run in runs)
        _print_row(CONTROL, f"{row(runs)} | {options}")
    for device in devices:
        if device.prove.impossible:
            _print_row(device.name, f"not by prove: {device.prove.impossible}")
            continue
        with copy.without(device):
            runs = prove_with_all_seeds(copy, device.name, device.prove.options, results, jobs)
        unexpected += not all(run.is_caught for run in runs)
        _print_row(device.name, row(runs))
    return unexpected == 0


def _print_row(name: str, cells: str) -> None:
    print(f"{name:54} {cells}", flush=True)  # noqa: T201


def main() -> int:
    """Check all devices, or those named; return 1 if the removal of one is not caught."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="devices; by default all")
    parser.add_argument("--simulate", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--prove", type=Path, metavar="FILE", help="of results: runs that it contains are not repeated")
    parser.add_argument("--jobs", type=int, default=1, help="runs of prove at a time")
    given = parser.parse_args()
    if unknown := set(given.names) - {device.name for device in DEVICES}:
        parser.error(f"no such device: {', '.join(sorted(unknown))}")
    devices = [device for device in DEVICES if not given.names or device.name in given.names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_repository(Path(folder))
        if given.prove:
            is_caught = check_with_prove(copy, devices, ResultsFile(given.prove), given.jobs)
        else:
            is_caught = check_with_tests(copy, devices, given.simulate)
    return 0 if is_caught else 1


if __name__ == "__main__":
    sys.exit(main())
