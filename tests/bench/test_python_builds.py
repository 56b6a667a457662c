"""What interpreters say about their builds."""

import sys
from typing import Any

import pytest

from shop_testkit.python_builds import Build, build_of, optimisations


@pytest.mark.parametrize(
    ("variables", "pgo", "lto"),
    [
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'", "PGO_PROF_USE_FLAG": "-fprofile-use"}, True, True),
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=thin'"}, True, True),
        ({"CONFIG_ARGS": "'--enable-optimizations' '--with-lto=no'"}, True, False),
        ({"CONFIG_ARGS": "'--enable-shared'", "PGO_PROF_GEN_FLAG": "x", "PGO_PROF_USE_FLAG": "y"}, False, False),
        ({"CONFIG_ARGS": "", "PY_CFLAGS_NODIST": "-flto -fprofile-use"}, True, True),
        # Debian's: optimised, with the flags removed.
        ({"CONFIG_ARGS": "'--enable-shared'", "PGO_PROF_GEN_FLAG": "-fprofile-generate"}, True, None),
        ({}, False, False),
    ],
)
def test_optimisations_are_read_from_the_build_s_variables(
    variables: dict[str, Any], pgo: bool, lto: bool | None
) -> None:
    assert optimisations("3.13.0", variables) == Build("3.13.0", pgo, lto)


def test_the_build_of_this_interpreter_has_its_version() -> None:
    assert build_of(sys.executable).version == ".".join(map(str, sys.version_info[:3]))


def test_what_is_not_recorded_is_said() -> None:
    assert str(Build("3.11.2", pgo=True, lto=None)) == "Python 3.11.2, with PGO, LTO not recorded"
