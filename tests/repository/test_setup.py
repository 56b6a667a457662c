"""`make setup` names what it lacks: the package, in one line."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("python", "missing"), [("python3", "install python3-venv"), ("no-python", "install no-python no-python-venv")]
)
def test_set_up_without_python_or_its_venv_names_the_packages(tmp_path: Path, python: str, missing: str) -> None:
    # As in Debian, where a Python without the package python3-venv has no ensurepip.
    (tmp_path / "ensurepip.py").write_text("raise ModuleNotFoundError")
    ran = subprocess.run(
        ["make", f"VENV={tmp_path}/.venv", f"{tmp_path}/.venv/bin/uv", f"PYTHON={python}"],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    line, *rest = ran.stderr.splitlines()
    assert missing in line
    assert [line for line in rest if not line.startswith("make: ***")] == []
