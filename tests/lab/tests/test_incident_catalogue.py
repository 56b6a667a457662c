"""Faults as data: a file that is no proven fault is refused, and what the catalogue names exists in today's shop."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shop_cli.local.workspace import root
from shop_kit.promql import parse, result
from shop_lab.incidents import upkeep
from shop_lab.incidents.catalogue import (
    FOLDER,
    Bounds,
    Fault,
    FaultMalformed,
    FaultNotFound,
    ObjectInjection,
    find,
    load,
    load_all,
)

FAULTS = load_all()
VALUES = {"lab": {"enabled": True}, "observability": {"enabled": True, "prometheusRule": {"enabled": True}}}
KINDS = {"deployment": "Deployment", "networkpolicy": "NetworkPolicy"}
STORE = {"mechanism": "store", "store": "valkey"}

each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effect": None}, "x.yaml: Value error, a fault without effect is not proven"),
        ({"walk": []}, "a fault without walk is not proven"),
        ({"seconds": 7200}, "x.yaml: seconds: Input should be less than or equal to 3600"),
        ({"extra": 1}, "x.yaml: extra: Extra inputs are not permitted"),
        ({"injections": [{"mechanism": "magic"}]}, "x.yaml: injections.0: Input tag 'magic' found"),
        ({"injections": [{**STORE, "apply": ["FLUSHALL"]}]}, "either hold, or both apply and restore"),
        ({"effect": {"query": "up", "above": 1}}, "effect.local is required where the fault can live locally"),
        ({"effect": {"query": "up"}}, "either above or below is required"),
        ({"kind": "control"}, "a control has no effect, no alert and no service"),
    ],
)
def test_a_file_without_proof_or_with_a_slip_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = {**yaml.safe_load((FOLDER / "ad-slow.yaml").read_text()), **changes}
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump({name: value for name, value in found.items() if value is not None}))
    with pytest.raises(FaultMalformed) as refused:
        load(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[", "- 1"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(FaultMalformed, match=r"^x\.yaml: [^\n]+$"):
        load(tmp_path / "x.yaml")


@pytest.mark.parametrize("identifier", ["nothing", "../faults/quiet", ""])
def test_an_unknown_id_is_refused(identifier: str) -> None:
    with pytest.raises(FaultNotFound, match="`shop faults` lists them"):
        find(identifier)


def test_only_a_value_within_the_bounds_shows_a_fault() -> None:
    assert [Bounds(above=1).contain(value) for value in (1, 1.5, None)] == [False, True, False]
    assert [Bounds(below=1).contain(value) for value in (1, 0, None)] == [False, True, False]
    assert not Bounds(above=-1).contain(None)


def test_the_catalogue_has_twenty_faults_three_cascades_three_controls_and_an_example() -> None:
    kinds = [fault.kind for fault in FAULTS.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"fault": 21, "cascade": 3, "control": 3}
    assert len({fault.title for fault in FAULTS.values()}) == len(FAULTS)


@each_fault
def test_effects_and_walks_read_metrics_and_labels_that_exist(fault: Fault) -> None:
    effect = [fault.effect.query] if fault.effect else []
    for query in [*effect, *(step.query for step in fault.walk)]:
        result(parse(query.replace("$in", 'k8s_namespace_name="shop"')))


# ---------------------------------------------------------------- the chart

Objects = dict[tuple[str, str], Any]
"""By kind and name."""


@pytest.fixture(scope="module")
def objects() -> Objects:
    """The objects of a laboratory's release."""
    command = (sys.executable, root() / "tests/chart/helm.py", root() / "charts/shop")
    request = json.dumps(["render", {"values": VALUES, "name": "shop", "namespace": "shop"}])
    rendered = subprocess.run(command, input=f"{request}\n", capture_output=True, text=True, check=True).stdout
    texts = [text for path, text in json.loads(rendered)["result"].items() if path.endswith(".yaml")]
    found = [loaded for text in texts for loaded in yaml.load_all(text, yaml.CSafeLoader) if loaded]
    return {(loaded["kind"], loaded["metadata"]["name"]): loaded for loaded in found}


@each_fault
def test_alerts_are_of_rules_and_objectives_that_exist(fault: Fault, objects: Objects) -> None:
    rules = [rule for group in objects["PrometheusRule", "shop-rules"]["spec"]["groups"] for rule in group["rules"]]
    names = {rule["alert"] for rule in rules if "alert" in rule}
    slos = {rule["labels"]["slo"] for rule in rules if "slo" in rule.get("labels", {})}
    expected = fault.expected
    for alert in filter(None, (expected.first, expected.page, *expected.may_fire, *expected.must_not_fire)):
        name, _, subject = alert.rstrip(")").partition("(")
        assert name in names, alert
        assert name != "ErrorBudgetBurn" or subject in slos, alert
    assert expected.within <= fault.seconds or not expected.first


@each_fault
def test_objects_have_what_is_changed(fault: Fault, objects: Objects) -> None:
    for injection in fault.injections:
        if isinstance(injection, ObjectInjection):
            kind, _, name = injection.target.partition("/")
            for path, new in injection.set.items():
                assert upkeep.change(objects[KINDS[kind], f"shop-{name}"], path, new), f"{path} has this value already"
