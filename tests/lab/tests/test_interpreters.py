"""The interpreters that run the shop."""

import sys
from pathlib import Path

import pytest

from shop_lab.bench import interpreters


def test_a_description_has_the_version_and_the_build() -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    assert interpreters.describe(sys.executable).startswith(f"Python {version}, PGO ")


def test_an_interpreter_of_another_version_is_none_that_is_named_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONS", sys.executable)
    assert sys.executable not in interpreters.others().values()


def test_a_version_that_is_not_installed_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PATH", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("PYTHONS", raising=False)
    assert set(interpreters.others().values()) == {None}
