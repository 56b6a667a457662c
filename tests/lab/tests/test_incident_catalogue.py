"""Faults as data: one that is not proven is refused, and what the catalogue names exists in today's shop."""

from typing import Any

import pytest
from pydantic import ValidationError

from shop_kit.promql import parse, result
from shop_lab.incidents.catalogue import Bounds, Fault, FaultNotFound, find, load_all

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


def test_the_catalogue_has_twenty_faults_three_cascades_three_controls_and_an_example() -> None:
    kinds = [fault.kind for fault in FAULTS.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"fault": 21, "cascade": 3, "control": 3}
    assert len({fault.title for fault in FAULTS.values()}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_effects_and_walks_read_metrics_and_labels_that_exist(fault: Fault) -> None:
    effect = [fault.effect.query] if fault.effect else []
    for query in [*effect, *(step.query for step in fault.walk)]:
        result(parse(query.replace("$in", 'k8s_namespace_name="shop"')))
