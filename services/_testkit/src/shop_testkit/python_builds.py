"""How a Python interpreter was built: with profile-guided and link-time optimisation, or without.

An interpreter without them needs a tenth more CPU time for an order.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Prints what `parse` reads, on the interpreter in question: here, or in an image.
PROGRAM = (
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
    ran = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, check=True)  # noqa: S603 - an interpreter
    return parse(ran.stdout)


def parse(output: str) -> Build:
    """Return how the interpreter was built that ran PROGRAM."""
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


def _in_words(name: str, present: bool | None) -> str:
    return {True: f"with {name}", False: f"without {name}", None: f"{name} not recorded"}[present]
