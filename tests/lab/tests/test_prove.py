"""`shop prove` as a command: a short run here, and in `make test-long` the negative controls. `make faults` is long."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)


def run_prove(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """Run `shop prove` with options; return the output and the verdict, with the exit status as `status`."""
    file = folder / "verdict.json"
    command = [sys.executable, "-m", "shop_cli", "prove", "--json", str(file), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if not file.exists() or not file.stat().st_size:
        raise RuntimeError(completed.stdout + completed.stderr)
    return completed.stdout, {**json.loads(file.read_text()), "status": completed.returncode}


def test_invariants_hold_in_the_short_run_of_the_readme(tmp_path: Path) -> None:
    output, verdict = run_prove(tmp_path, "--orders", "100", "--kills", "8")
    assert (verdict["verdict"], verdict["status"]) == ("holds", 0), output
    assert verdict["faults"] == {
        "kill": 6, "kill at a failpoint": 2, "network fault": 1, "pause": 1,
        "refused notifications": 2, "refused releases": 1, "unresolved shipments": 1,
    }  # fmt: skip
    assert [name for name in verdict["invariants"] if name in output] == [f"I{number}" for number in range(1, 12)]
    assert output.endswith("\nEvery invariant holds in 100 orders, seed 1.\n")


def test_a_verdict_that_cannot_be_written_is_refused_before_the_orders() -> None:
    with pytest.raises(RuntimeError, match="Invalid value for '--json'"):
        run_prove(Path("/nowhere"), "--orders", "100")


@pytest.mark.long
def test_a_run_without_faults_proves_nothing(tmp_path: Path) -> None:
    output, verdict = run_prove(tmp_path, "--orders", "120", "--kills", "0")
    assert (verdict["verdict"], verdict["status"]) == ("insufficient", 1)
    assert "the run did not exercise takeovers: 0 of 1" in output
    assert output.endswith("\nNothing is proven: too little happened in 120 orders, seed 1.\n")


@pytest.mark.long
def test_the_naive_checkout_serves_patient_customers_without_faults(tmp_path: Path) -> None:
    output, verdict = run_prove(tmp_path, "--orders", "120", "--kills", "0", "--naive")
    assert verdict["verdict"] == "holds", output


@pytest.mark.long
def test_invariants_do_not_hold_for_the_naive_checkout_under_kills(tmp_path: Path) -> None:
    options = ("--orders", "120", "--seed", "7", "--kills", "12", "--naive")
    output, verdict = run_prove(tmp_path, *options)
    assert (verdict["verdict"], verdict["status"]) == ("violated", 1)
    assert not verdict["invariants"]["I1"]["holds"], output
    assert not verdict["invariants"]["I4"]["holds"], output
