import pytest

from shop_lab.world.interpreter import BuildFlags, build_flags

PLAIN = {
    "CONFIG_ARGS": "'--prefix=/opt/python' '--enable-shared'",
    "PGO_PROF_USE_FLAG": "-fprofile-use -fprofile-correction",
    "PY_CFLAGS_NODIST": "-std=c11 -Wextra",
    "PY_LDFLAGS_NODIST": "",
}
PGO = {"CONFIG_ARGS": "'--enable-optimizations'"}
LTO = {"PY_LDFLAGS_NODIST": "-fno-semantic-interposition -flto"}


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, BuildFlags(pgo=False, lto=False)),
        (PGO, BuildFlags(pgo=True, lto=False)),
        (LTO, BuildFlags(pgo=False, lto=True)),
        ({**PGO, **LTO}, BuildFlags(pgo=True, lto=True)),
        ({"PY_CFLAGS_NODIST": "-fprofile-instr-use=code.profclangd -flto=thin"}, BuildFlags(pgo=True, lto=True)),
    ],
    ids=["plain", "PGO", "LTO", "both", "clang"],
)
def test_flags_of_a_build_are_recognized(changes: dict[str, str], flags: BuildFlags) -> None:
    assert build_flags({**PLAIN, **changes}) == flags


def test_an_edited_record_is_not_taken_for_a_build_without_optimizations() -> None:
    assert build_flags({**PLAIN, "PGO_PROF_USE_FLAG": ""}) == BuildFlags(pgo=None, lto=None)
