"""The interpreters that run the shop."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from shop_lab.world.interpreter import build_flags

# The oldest and the newest version that the shop supports.
VERSIONS = ("3.11", "3.13")
_PROGRAM = (
    "import json, platform, sysconfig; print(json.dumps([platform.python_version(), sysconfig.get_config_vars()]))"
)


def describe(python: str) -> str:
    """Return an interpreter's version and how it was built."""
    output = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout
    version, variables = json.loads(output)
    return f"Python {version}, {build_flags(variables)}"


def base() -> str:
    """Return the interpreter from which this process's virtual environment was made."""
    return str(getattr(sys, "_base_executable", sys.executable))


def others() -> dict[str, str | None]:
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
