"""`python -m shop_lab.mutants` removes each safety device in a copy of the repository: its fast tests must then fail.

With `--simulate` the simulation searches each copy for a violation as well, and with `--prove` so does `shop prove`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shop_lab.mutants.devices import DEVICES, ROOT, Device

_FAILED = 1
_TIMEOUT_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the repository, whose packages replace the installed ones."""

    folder: Path

    @contextmanager
    def without(self, device: Device) -> Iterator[None]:
        """Remove a device while in the context."""
        file = self.folder / device.file
        source = file.read_text()
        file.write_text(device.mutate(source))
        try:
            yield
        finally:
            file.write_text(source)

    def run(self, *arguments: str) -> int | None:
        """Run Python in the copy and return its exit status, None if it takes too long."""
        patterns = ("services/*/src", "employee-api/src", "protos/gen", "tests/*/src")
        sources = [str(source) for pattern in patterns for source in self.folder.glob(pattern)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True,
                timeout=_TIMEOUT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        return done.returncode

    def fails(self, tests: Iterable[str]) -> bool:
        """Return whether one of the tests fails, or hangs; a test that cannot even run is an error."""
        status = self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
        if status not in {0, _FAILED, None}:
            raise RuntimeError(f"pytest ended with status {status}: {' '.join(tests)}")
        return status != 0

    def violated_in_trial(self, orders: int) -> list[str]:
        """Run `shop prove` with so many orders and return the names of the violated invariants."""
        verdict = self.folder / "verdict.json"
        verdict.unlink(missing_ok=True)
        self.run("-m", "shop_cli", "prove", "--orders", str(orders), "--json", str(verdict))
        invariants = json.loads(verdict.read_text())["invariants"] if verdict.exists() else {}
        return [name for name, invariant in invariants.items() if not invariant["holds"]]


def copy_repository(folder: Path) -> Copy:
    """Copy all files that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return Copy(folder)


def check(copy: Copy, devices: Sequence[Device], simulate_seconds: float, orders: int) -> bool:
    """Print a line for each device. Return whether each is caught by a fast test."""
    if copy.fails(sorted({device.test_id for device in devices})):
        print("the tests fail without any mutation", file=sys.stderr)  # noqa: T201
        return False
    missed = 0
    for device in devices:
        with copy.without(device):
            caught = copy.fails([device.test_id])
            cells = ["fast test fails" if caught else "NOT CAUGHT"]
            if simulate_seconds:
                search = ("-m", "shop_lab.simulation", "--seconds", str(simulate_seconds), "--seed", "0")
                cells.append("simulation fails" if copy.run(*search) == _FAILED else "-")
            if orders:
                cells.append(f"prove: {' '.join(copy.violated_in_trial(orders)) or '-'}")
        missed += not caught
        print(f"{device.name:54} {' | '.join(cells)}", flush=True)  # noqa: T201
    return missed == 0


def main() -> int:
    """Check all devices, or those named; return 1 if the removal of one is not caught."""
    parser = argparse.ArgumentParser(prog="python -m shop_lab.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="devices; by default all")
    parser.add_argument("--simulate", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--prove", type=int, default=0, metavar="ORDERS")
    given = parser.parse_args()
    if unknown := set(given.names) - {device.name for device in DEVICES}:
        parser.error(f"no such device: {', '.join(sorted(unknown))}")
    devices = [device for device in DEVICES if not given.names or device.name in given.names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return 0 if check(copy_repository(Path(folder)), devices, given.simulate, given.prove) else 1


if __name__ == "__main__":
    sys.exit(main())
