"""Faults as data: the catalogue is whole, and a file that is no proven fault is refused with one line."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_lab.incidents.catalogue import FOLDER, Bounds, FaultMalformed, FaultNotFound, find, load, load_all


def fault(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "ad-slow.yaml").read_text())
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


STORE = {"mechanism": "store", "store": "valkey"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effect": None}, "x.yaml: Value error, a fault without effect is not proven"),
        ({"walk": []}, "a fault without walk is not proven"),
        ({"injections": []}, "a fault without injections is not proven"),
        ({"extra": 1}, "x.yaml: extra: Extra inputs are not permitted"),
        ({"where": ["moon"]}, "x.yaml: where.0: Input should be 'local', 'postgres' or 'cluster'"),
        ({"seconds": 7200}, "x.yaml: seconds: Input should be less than or equal to 3600"),
        ({"injections": [{"mechanism": "magic"}]}, "x.yaml: injections.0: Input tag 'magic' found"),
        ({"injections": [{**STORE, "apply": ["FLUSHALL"]}]}, "either hold, or both apply and restore"),
        ({"injections": [{"mechanism": "object", "target": "deployment/ad"}]}, "either target and set, or create"),
        ({"effect": {"query": "up", "above": 1}}, "effect.local is required where the fault can live locally"),
        ({"effect": {"query": "up"}}, "either above or below is required"),
        ({"kind": "control"}, "a control has no effect, no alert and no service"),
        ({"labels": {"rcaeval": "gremlin"}}, "x.yaml: labels.rcaeval: Input should be 'cpu'"),
    ],
)
def test_a_file_without_proof_or_with_a_slip_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(fault(**changes)))
    with pytest.raises(FaultMalformed) as refused:
        load(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[", "- 1", "title: \t x"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(FaultMalformed, match=r"^x\.yaml: [^\n]+$"):
        load(tmp_path / "x.yaml")


def test_every_fault_of_the_catalogue_is_whole() -> None:
    faults = load_all()
    assert {"ad-slow", "pg-lock", "quiet"} <= set(faults)
    assert len({found.title for found in faults.values()}) == len(faults)


@pytest.mark.parametrize("identifier", ["nothing", "../faults/quiet", "", "quiet.yaml"])
def test_an_unknown_id_is_refused(identifier: str) -> None:
    with pytest.raises(FaultNotFound, match="`shop faults` lists them"):
        find(identifier)


@pytest.mark.parametrize(
    ("bounds", "value", "inside"),
    [
        (Bounds(above=1), 1.5, True),
        (Bounds(above=1), 1, False),
        (Bounds(below=1), 0, True),
        (Bounds(below=1), 1, False),
        (Bounds(below=1), None, False),
        (Bounds(above=-1), None, False),
    ],
)
def test_only_a_value_within_the_bounds_shows_a_fault(bounds: Bounds, value: float | None, inside: bool) -> None:
    assert bounds.contain(value) is inside
