"""Other code to compare with: temporary worktrees, with virtual environments of their own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shop_cli.local.workspace import root

# Variables by which `make bench` would configure the make of another folder, and its own virtual environment.
_OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV")

_COMPILE = """
import compileall, sysconfig
for folder in (sysconfig.get_path("purelib"), "services", "protos", "employee-api"):
    compileall.compile_dir(folder, quiet=2, workers=0)
"""


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary folder, with its own .venv of this interpreter; remove both on leaving."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / "worktree"
        _run(root(), "git", "worktree", "add", "--quiet", "--detach", str(folder), commit)
        try:
            _run(folder, "make", "setup", f"PYTHON={_base()}")
            compile_bytecode(folder, str(folder / ".venv" / "bin" / "python"))
            yield folder
        finally:
            _run(root(), "git", "worktree", "remove", "--force", str(folder))


def compile_bytecode(folder: Path, python: str) -> None:
    """Compile a checkout and the packages of an interpreter: all variants shall start from bytecode, as images do.

    A process that compiles at its start uses about 5 % more CPU time from then on: its memory is more scattered.
    """
    _run(folder, python, "-c", _COMPILE)


def short_hash(commit: str) -> str:
    """Return the short hash of a commit. End the program if there is no such commit."""
    return _run(root(), "git", "rev-parse", "--short", "--verify", f"{commit}^{{commit}}").strip()


def _run(folder: Path, *command: str) -> str:
    variables = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def _base() -> str:
    """Return the interpreter from which this process's virtual environment was made."""
    return str(getattr(sys, "_base_executable", sys.executable))
