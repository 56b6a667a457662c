"""The interpreters that run the shop, and how they were built."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The oldest and the newest version that the shop supports.
VERSIONS = ("3.11", "3.13")
_PROGRAM = (
    "import json, platform, sysconfig; print(json.dumps([platform.python_version(), sysconfig.get_config_vars()]))"
)
_FLAGS = ("PY_CFLAGS_NODIST", "PY_LDFLAGS_NODIST", "PY_CORE_CFLAGS", "PY_CORE_LDFLAGS")


@dataclass(frozen=True)
class Build:
    """How an interpreter was built; None where it does not say.

    Attributes:
        version: such as 3.13.0.
        pgo: with profile-guided optimisation.
        lto: with link-time optimisation.
    """

    version: str
    pgo: bool | None
    lto: bool | None

    def __str__(self) -> str:
        return f"Python {self.version}, {_in_words('PGO', self.pgo)}, {_in_words('LTO', self.lto)}"


def build_of(python: str) -> Build:
    """Return how an interpreter was built."""
    output = subprocess.run([python, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout
    version, variables = json.loads(output)
    return optimisations(version, variables)


def optimisations(version: str, variables: Mapping[str, Any]) -> Build:
    """Return what the variables of `sysconfig` say about an interpreter's build."""
    arguments = str(variables.get("CONFIG_ARGS") or "")
    flags = " ".join(str(variables.get(name) or "") for name in _FLAGS)
    pgo = "--enable-optimizations" in arguments or "-fprofile-use" in flags or "-fprofile-instr-use" in flags
    lto = bool(re.search(r"--with-lto(?!=no)", arguments)) or "-flto" in flags
    # Debian optimises, and removes the flags from what extensions are built with.
    if not pgo and variables.get("PGO_PROF_GEN_FLAG") and not variables.get("PGO_PROF_USE_FLAG"):
        return Build(version, pgo=True, lto=lto or None)
    return Build(version, pgo=pgo, lto=lto)


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
        if build_of(python).version.startswith(f"{version}."):
            yield python
    found = shutil.which(f"python{version}")
    if found and not Path(found).is_relative_to(Path.home() / ".pyenv" / "shims"):
        yield found
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))


def _in_words(name: str, present: bool | None) -> str:
    return {True: f"with {name}", False: f"without {name}", None: f"{name} not recorded"}[present]
