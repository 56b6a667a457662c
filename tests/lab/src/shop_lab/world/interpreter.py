"""How an interpreter was compiled.

As a script, which needs nothing but the interpreter, print it, and exit with status 0 if PGO and LTO were used:

    docker run --rm --interactive --entrypoint python IMAGE - < interpreter.py
"""

import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PGO_FLAGS = ("-fprofile-use", "-fprofile-instr-use")
_WORDS = {True: "yes", False: "no", None: "not recorded"}


@dataclass(frozen=True)
class BuildFlags:
    """Optimizations that need special builds; None if the interpreter has no record of them, as Debian's has none."""

    pgo: bool | None
    lto: bool | None

    def __str__(self) -> str:
        return f"PGO {_WORDS[self.pgo]}, LTO {_WORDS[self.lto]}"


def build_flags(variables: Mapping[str, Any] | None = None) -> BuildFlags:
    """Return the flags of the running interpreter, or of the one whose `sysconfig.get_config_vars()` are given."""
    known = sysconfig.get_config_vars() if variables is None else variables
    arguments, compiler, linker = (
        str(known.get(name) or "") for name in ("CONFIG_ARGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS_NODIST")
    )
    pgo = "--enable-optimizations" in arguments or any(flag in compiler for flag in _PGO_FLAGS)
    lto = "-flto" in linker or "-flto" in compiler
    # Every build records the flag that PGO would use. Where it is empty, the record was edited.
    if not known.get("PGO_PROF_USE_FLAG"):
        return BuildFlags(pgo or None, lto or None)
    return BuildFlags(pgo, lto)


if __name__ == "__main__":
    flags = build_flags()
    sys.stdout.write(f"{flags}\n")
    sys.exit(0 if flags.pgo and flags.lto else 1)
