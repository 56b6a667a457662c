"""Copies of the repository, in which a safety device can be removed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shop_lab.mutants.devices import ROOT, Device


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

    def run(self, *arguments: str, timeout_seconds: float = 300) -> int | None:
        """Run Python in the copy and return its exit status, None if it takes too long."""
        sources = [
            *self.folder.glob("services/*/src"),
            self.folder / "employee-api/src",
            self.folder / "protos/gen",
            *self.folder.glob("tests/*/src"),
        ]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True,
                timeout=timeout_seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        return done.returncode


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
