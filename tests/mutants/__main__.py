"""`python tests/mutants` removes each safety device in a copy of the repository: its fast tests must then fail.

With `--simulate` the simulation searches each copy for a violation, and with `--prove` five seeds of `shop prove` do.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from mutants.devices import DEVICES, ROOT, Device  # noqa: E402

_FAILED = 1
_SEEDS = range(1, 6)
_PROVE = ("-m", "shop_cli", "prove", "--orders", "300")
_TIMEOUT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the repository, whose packages replace the installed ones."""

    folder: Path

    def run(self, *arguments: str) -> int:
        """Run Python in the copy and return its exit status; -1 if it takes too long."""
        sources = [*self.folder.glob("services/*/src"), self.folder / "employee-api/src", self.folder / "protos/gen"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *arguments]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return -1
        return done.returncode

    def fails(self, tests: Sequence[str]) -> bool:
        """Return whether one of the tests fails; a test that cannot even run is an error."""
        status = self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)
        if status not in {0, _FAILED}:
            raise RuntimeError(f"pytest ended with status {status}: {' '.join(tests)}")
        return status == _FAILED


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


def check(copy: Copy, device: Device, *, simulate: float, prove: bool) -> tuple[bool, str]:
    """Remove one device. Return whether its fast tests fail, and a line of the table."""
    file = copy.folder / device.file
    source = file.read_text()
    file.write_text(device.mutate(source))
    try:
        caught = copy.fails(device.tests)
        cells = ["fast test fails" if caught else "NOT CAUGHT"]
        if simulate:
            found = copy.run("tests/simulation", "--seconds", str(simulate), "--seed", "0") == _FAILED
            cells.append("simulation fails" if found else "-")
        if prove:
            killed = sum(copy.run(*_PROVE, "--seed", str(seed)) == _FAILED for seed in _SEEDS)
            cells.append(f"prove fails for {killed} of {len(_SEEDS)} seeds")
    finally:
        file.write_text(source)
    return caught, f"{device.name:54} {' | '.join(cells)}"


def main() -> int:
    """Check all devices, or those named; return 1 if the removal of one is not caught."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="devices; by default all")
    parser.add_argument("--simulate", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--prove", action="store_true")
    given = parser.parse_args()
    chosen = [device for device in DEVICES if not given.names or device.name in given.names]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_repository(Path(folder))
        tests = sorted({test for device in chosen for test in device.tests})
        if copy.fails(tests):
            print("the tests fail without any mutation", file=sys.stderr)  # noqa: T201
            return 1
        for device in chosen:
            caught, line = check(copy, device, simulate=given.simulate, prove=given.prove)
            missed += not caught
            print(line, flush=True)  # noqa: T201
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
