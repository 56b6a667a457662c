"""Faults as data: one that is not proven is refused, what the catalogue names exists, and what commands refuse."""

import os
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from pydantic import ValidationError

from chassis.errors import InvalidArgument
from shop_cli.local.run_file import Run, locked, published
from shop_kit.promql import parse, result
from shop_lab.incidents import injector
from shop_lab.incidents.catalogue import Bounds, Fault, FaultNotFound, find, load_all
from shop_lab.incidents.commands import faults, parse_duration
from shop_lab.incidents.gameday import gameday
from shop_lab.incidents.local import Local
from shop_lab.incidents.targets import CannotAct, NoLaboratory

FAULTS = load_all()
STORE = {"mechanism": "store", "store": "valkey"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effect": None}, "a fault without effect is not proven"),
        ({"walk": []}, "a fault without walk is not proven"),
        ({"injections": [{**STORE, "apply": ["FLUSHALL"]}]}, "either hold, or both apply and restore"),
        ({"injections": [{**STORE, "hold": ["MULTI"]}]}, "a local shop has failpoints and customers alone"),
        ({"walk": [{"question": "Q?", "query": "up", "answer": "A"}]}, "a local shop has no Prometheus"),
        ({"effect": {"query": "up"}}, "either above or below is required"),
        ({"kind": "control"}, "a control has no effect, no alert and no service"),
    ],
)
def test_a_fault_without_proof_or_with_a_slip_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Fault.model_validate({**FAULTS["ad-slow"].model_dump(), **changes})


def test_an_unknown_id_is_refused() -> None:
    with pytest.raises(FaultNotFound, match="no fault 'nothing' in the catalogue: `shop faults` lists them"):
        find("nothing")


def test_only_a_value_within_the_bounds_shows_a_fault() -> None:
    assert [Bounds(above=1).contain(value) for value in (1, 1.5, None)] == [False, True, False]
    assert [Bounds(below=1).contain(value) for value in (1, 0, None)] == [False, True, False]
    assert not Bounds(above=-1).contain(None)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_effects_and_walks_read_metrics_and_labels_that_exist(fault: Fault) -> None:
    effect = [fault.effect.query] if fault.effect else []
    for query in [*effect, *(step.query for step in fault.walk)]:
        result(parse(query.replace("$in", 'k8s_namespace_name="shop"')))


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
