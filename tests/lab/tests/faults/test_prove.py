"""`shop prove` as a command: the invariants hold under faults, and a run that exercised nothing proves nothing."""

from collections.abc import Callable
from typing import Any

import pytest

RunProve = Callable[..., tuple[int, str, dict[str, Any]]]

pytestmark = pytest.mark.timeout(600)

SMALL_RUN = ("--orders", "250", "--seed", "7", "--kills", "20", "--pauses", "2", "--replaced", "3", "--operators", "4")


def test_invariants_hold_under_every_kind_of_fault_and_with_tls(run_prove: RunProve) -> None:
    status, output, verdict = run_prove(*SMALL_RUN, "--tls")
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
        "refused notifications": 2,
        "refused releases": 1,
        "refusing peer": 2,
        "unimplemented peer": 1,
        "unresolved shipments": 1,
    }
    assert [name for name in verdict["invariants"] if name in output] == [f"I{number}" for number in range(1, 12)]
    assert output.endswith("\nEvery invariant holds in 250 orders, seed 7.\n")
    for name in ("dead letters", "orders that need a refund", "orders that need a review"):
        assert verdict["exercised"][name]["floor"] > 0


@pytest.mark.long
def test_the_short_run_of_the_readme_holds(run_prove: RunProve) -> None:
    status, output, _ = run_prove("--orders", "100", "--kills", "8")
    assert status == 0, output


@pytest.mark.long
def test_a_run_without_faults_proves_nothing(run_prove: RunProve, without_faults: list[str]) -> None:
    status, output, verdict = run_prove(*without_faults)
    assert verdict["verdict"] == "insufficient"
    assert status == 1
    assert "the run did not exercise takeovers: 0 of 1" in output
    assert output.endswith("\nNothing is proven: too little happened in 120 orders, seed 1.\n")
