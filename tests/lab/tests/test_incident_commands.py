"""What commands refuse."""

import os
from pathlib import Path

import pytest
import typer.testing

from chassis.errors import InvalidArgument
from shop_cli.local.run_file import Run, locked, published
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import find
from shop_lab.incidents.commands import faults, parse_duration
from shop_lab.incidents.gameday import gameday
from shop_lab.incidents.local import Local
from shop_lab.incidents.targets import CannotAct, NoLaboratory


@pytest.mark.parametrize("text", ["0", "2h", "-1", "", "1.5m", "²"])
def test_a_duration_is_a_number_with_a_unit_and_at_most_an_hour(text: str) -> None:
    assert [parse_duration(given) for given in ("90", "90s", "5m", "1h")] == [90, 90, 300, 3600]
    with pytest.raises(InvalidArgument, match="--for"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("app", "arguments", "field"),
    [(gameday, [], "--namespace: must name"), (faults, ["start", "quiet"], "FAULT: quiet injects nothing")],
)
def test_what_no_fault_can_be_given_is_refused(app: typer.Typer, arguments: list[str], field: str) -> None:
    with pytest.raises(InvalidArgument, match=field):
        typer.testing.CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    ("fault", "lab", "error", "message"),
    [
        ("ad-slow", False, NoLaboratory, "start it with `shop up --lab`"),
        ("pg-lock", True, CannotAct, "pg-lock needs a shop on a cluster"),
    ],
)
def test_a_local_shop_that_cannot_have_a_fault_is_refused(
    tmp_path: Path, fault: str, *, lab: bool, error: type[Exception], message: str
) -> None:
    with pytest.raises(CannotAct, match="no shop runs in"):
        injector.start(find(fault), Local(tmp_path), 60)
    refused = pytest.raises(error, match=message)
    with locked(tmp_path), published(Run(os.getpid(), str(tmp_path), lab=lab)), refused:
        injector.start(find(fault), Local(tmp_path), 60)
