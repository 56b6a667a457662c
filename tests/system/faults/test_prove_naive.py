"""`shop prove --naive` as a command: the control holds without faults, and fails under kills."""

from pathlib import Path

import pytest

from shop_lab.world.prove_runs import WITHOUT_FAULTS, run_prove

pytestmark = pytest.mark.timeout(600)


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
