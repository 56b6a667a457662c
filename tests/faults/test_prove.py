"""`shop prove` as a command: the invariants hold, but not for the naive checkout with the same customers and faults."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(400)

SMALL_RUN = ("--orders", "250", "--seed", "7", "--kills", "20", "--pauses", "2", "--replaced", "0")


def run_prove(tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit status, the output and the verdict."""
    file = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "shop_cli", "prove", *SMALL_RUN, "--json", str(file), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), completed.stdout + completed.stderr
    return completed.returncode, completed.stdout, json.loads(file.read_text())


def test_invariants_hold_under_kills_and_pauses(tmp_path: Path) -> None:
    status, output, verdict = run_prove(tmp_path)
    assert verdict["verdict"] == "holds", output
    assert status == 0
    assert verdict["faults"] == {"kill": 13, "kill at a failpoint": 7, "network fault": 2, "pause": 2}
    assert verdict["exercised"]["takeovers"]["count"] > 0
    assert [name for name in verdict["invariants"] if name in output] == [f"I{number}" for number in range(1, 10)]
    assert '"seed": 7' in output


def test_invariants_do_not_hold_for_a_checkout_without_a_journal(tmp_path: Path) -> None:
    status, output, verdict = run_prove(tmp_path, "--naive")
    assert status == 1
    assert verdict["verdict"] == "violated"
    assert not verdict["invariants"]["I1"]["holds"], output
    assert not verdict["invariants"]["I4"]["holds"], output
    assert verdict["counts"]["double_charges"] > 0
    assert verdict["counts"]["lost_confirmations"] > 0
