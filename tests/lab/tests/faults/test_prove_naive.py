"""`shop prove --naive` as a command: the control holds without faults, and fails under kills."""

from collections.abc import Callable
from typing import Any

import pytest

RunProve = Callable[..., tuple[int, str, dict[str, Any]]]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_the_naive_checkout_serves_patient_customers_without_faults(
    run_prove: RunProve, without_faults: list[str]
) -> None:
    status, output, verdict = run_prove(*without_faults, "--naive", "--patient")
    assert verdict["verdict"] == "holds", output
    assert status == 0


def test_invariants_do_not_hold_for_the_naive_checkout_under_kills(run_prove: RunProve) -> None:
    options = ("--orders", "120", "--seed", "7", "--kills", "12", "--pauses", "0", "--naive", "--patient")
    status, output, verdict = run_prove(*options)
    assert status == 1
    assert verdict["verdict"] == "violated"
    assert not verdict["invariants"]["I1"]["holds"], output
    assert not verdict["invariants"]["I4"]["holds"], output
    assert verdict["counts"]["double_charges"] > 0
    assert verdict["counts"]["lost_confirmations"] > 0
