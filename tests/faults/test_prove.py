"""`shop prove` as it is called: the shop holds, and the control, under the very same customers and faults, does not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(400)

FEW = ("--orders", "250", "--seed", "7", "--kills", "20", "--pauses", "2")


def proved(tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """The exit status, what was printed, and the verdict."""
    file = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "shop_cli", "prove", *FEW, "--json", str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, json.loads(file.read_text())


def test_orders_hold_under_kills_and_pauses(tmp_path: Path) -> None:
    status, printed, verdict = proved(tmp_path)
    assert verdict["verdict"] == "holds", printed
    assert status == 0
    assert verdict["done"] == {"kill": 20, "pause": 2}
    assert [name for name in verdict["invariants"] if name in printed] == [f"I{number}" for number in range(1, 10)]
    assert '"seed": 7' in printed


def test_a_checkout_that_keeps_no_record_does_not_hold(tmp_path: Path) -> None:
    status, printed, verdict = proved(tmp_path, "--naive")
    assert status == 1
    assert verdict["verdict"] == "violated"
    assert not verdict["invariants"]["I1"]["holds"], printed
    assert not verdict["invariants"]["I4"]["holds"], printed
    assert verdict["counts"]["double_charges"] > 0
    assert verdict["counts"]["lost_confirmations"] > 0
