"""Other code and other interpreters to compare with: temporary worktrees and virtual environments."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shop_cli.local.workspace import root
from shop_lab.world.interpreter import build_flags

# The oldest and the newest version that the shop supports.
VERSIONS = ("3.11", "3.13")
_DESCRIBE = (
    "import json, platform, sysconfig; print(json.dumps([platform.python_version(), sysconfig.get_config_vars()]))"
)
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


@contextmanager
def environment(python: str) -> Iterator[str]:
    """Install this checkout's packages into a temporary environment of an interpreter; yield its python."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        installed = f"{name}/venv/bin/python"
        _run(root(), "make", "setup", f"PYTHON={python}", f"VENV={name}/venv")
        compile_bytecode(root(), installed)
        yield installed


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


def describe(python: str) -> str:
    """Return an interpreter's version and how it was built."""
    output = subprocess.run([python, "-c", _DESCRIBE], capture_output=True, text=True, check=True).stdout
    version, variables = json.loads(output)
    return f"Python {version}, {build_flags(variables)}"


def _base() -> str:
    """Return the interpreter from which this process's virtual environment was made."""
    return str(getattr(sys, "_base_executable", sys.executable))


def other_pythons() -> dict[str, str | None]:
    """Return an interpreter for each of VERSIONS that is not this one; None if it is not installed.

    `PYTHONS`, paths separated by spaces, has precedence over those of PATH and pyenv.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {version: next(_candidates(version), None) for version in VERSIONS if version != own}


def _candidates(version: str) -> Iterator[str]:
    for python in os.environ.get("PYTHONS", "").split():
        if describe(python).startswith(f"Python {version}."):
            yield python
    found = shutil.which(f"python{version}")
    if found and not Path(found).is_relative_to(Path.home() / ".pyenv" / "shims"):
        yield found
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))
