"""`shop prove` as a command: the invariants hold while PostgreSQL primaries die and standbys are promoted."""

from collections.abc import Callable
from typing import Any

import pytest

RunProve = Callable[..., tuple[int, str, dict[str, Any]]]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FAILOVERS = ("--orders", "250", "--kills", "4", "--pauses", "1", "--restarts", "1", "--failovers", "3")


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_invariants_hold_under_failovers(run_prove: RunProve, replication: str) -> None:
    options = ("--database", "postgres", "--replication", replication)
    status, output, verdict = run_prove(*FAILOVERS, *options)
    assert verdict["verdict"] == "holds", output
    assert status == 0
    assert verdict["faults"]["failover"] == 3
    assert verdict["counts"]["double_charges"] == verdict["counts"]["double_shipments"] == 0
