"""How an interpreter was compiled: PGO and LTO need special builds.

As a script, which needs nothing but the interpreter, exit with status 0 if both were used:

    docker run --rm --interactive --entrypoint python IMAGE - < interpreter.py
"""

import sys
import sysconfig


def build_flags() -> dict[str, bool]:
    """Return which optimizations the interpreter says that it has. Debian's says nothing."""
    arguments, compiler, linker = (
        str(sysconfig.get_config_var(name) or "") for name in ("CONFIG_ARGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS_NODIST")
    )
    profile_used = any(flag in compiler for flag in ("-fprofile-use", "-fprofile-instr-use"))
    return {"PGO": "--enable-optimizations" in arguments or profile_used, "LTO": "-flto" in linker + compiler}


if __name__ == "__main__":
    flags = build_flags()
    sys.stdout.write(f"{flags}\n")
    sys.exit(0 if all(flags.values()) else 1)
