"""`shop prove` as a command: the invariants hold, but not for the naive checkout, and not if nothing was exercised."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)

SMALL_RUN = ("--orders", "250", "--seed", "7", "--kills", "20", "--pauses", "2", "--replaced", "3")
WITHOUT_FAULTS = (
    "--orders",
    "120",
    "--kills",
    "0",
    "--pauses",
    "0",
    "--network",
    "0",
    "--replaced",
    "0",
    "--relay",
    "0",
    "--late",
    "0",
    "--disks",
    "0",
)
FAILOVERS = ("--orders", "250", "--kills", "4", "--pauses", "1", "--restarts", "1", "--failovers", "3")


def run_prove(tmp_path: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Return the exit status, the output and the verdict."""
    file = tmp_path / "verdict.json"
    command = [sys.executable, "-m", "shop_cli", "prove", "--json", str(file), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert file.exists(), completed.stdout + completed.stderr
    return completed.returncode, completed.stdout, json.loads(file.read_text())


def test_invariants_hold_under_every_kind_of_fault(tmp_path: Path) -> None:
    status, output, verdict = run_prove(tmp_path, *SMALL_RUN)
    assert verdict["verdict"] == "holds", output
    assert status == 0
    assert verdict["faults"] == {
        "hung database": 1,
        "kill": 13,
        "kill at a failpoint": 7,
        "late requests": 1,
        "mail relay fault": 1,
        "network fault": 2,
        "pause": 2,
        "refusing peer": 2,
        "unimplemented peer": 1,
    }
    assert [name for name in verdict["invariants"] if name in output] == [f"I{number}" for number in range(1, 12)]
    assert '"seed": 7' in output


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_invariants_hold_under_failovers(tmp_path: Path, replication: str) -> None:
    options = ("--database", "postgres", "--replication", replication)
    status, output, verdict = run_prove(tmp_path, *FAILOVERS, *options)
    assert verdict["verdict"] == "holds", output
    assert status == 0
    assert verdict["faults"]["failover"] == 3
    assert verdict["counts"]["double_charges"] == verdict["counts"]["double_shipments"] == 0


def test_a_run_without_faults_proves_nothing(tmp_path: Path) -> None:
    status, output, verdict = run_prove(tmp_path, *WITHOUT_FAULTS)
    assert verdict["verdict"] == "insufficient"
    assert status == 1
    assert "the run did not exercise takeovers: 0 of 1" in output


def test_the_naive_checkout_serves_patient_customers_without_faults(tmp_path: Path) -> None:
    status, output, verdict = run_prove(tmp_path, *WITHOUT_FAULTS, "--naive", "--patient")
    assert verdict["verdict"] == "holds", output
    assert status == 0


def test_invariants_do_not_hold_for_the_naive_checkout_under_kills(tmp_path: Path) -> None:
    options = ("--orders", "250", "--seed", "7", "--kills", "20", "--pauses", "0", "--naive", "--patient")
    status, output, verdict = run_prove(tmp_path, *options)
    assert status == 1
    assert verdict["verdict"] == "violated"
    assert not verdict["invariants"]["I1"]["holds"], output
    assert not verdict["invariants"]["I4"]["holds"], output
    assert verdict["counts"]["double_charges"] > 0
    assert verdict["counts"]["lost_confirmations"] > 0
