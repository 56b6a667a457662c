"""The faults of the catalogue against today's signals, rules and chart: what they name exists."""

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from shop_cli.local.workspace import root
from shop_kit.promql import parse, result
from shop_lab.incidents import upkeep
from shop_lab.incidents.catalogue import Fault, ObjectInjection, load_all

VALUES = {"lab": {"enabled": True}, "observability": {"enabled": True, "prometheusRule": {"enabled": True}}}
KINDS = {"deployment": "Deployment", "networkpolicy": "NetworkPolicy"}

each_fault = pytest.mark.parametrize("fault", load_all().values(), ids=lambda fault: fault.id)


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    """The objects of a laboratory's release by kind and name."""
    command = (sys.executable, root() / "tests/chart/helm.py", root() / "charts/shop")
    request = json.dumps(["render", {"values": VALUES, "name": "shop", "namespace": "shop"}])
    rendered = subprocess.run(command, input=f"{request}\n", capture_output=True, text=True, check=True).stdout
    texts = [text for path, text in json.loads(rendered)["result"].items() if path.endswith(".yaml")]
    found = [loaded for text in texts for loaded in yaml.load_all(text, yaml.CSafeLoader) if loaded]
    return {(loaded["kind"], loaded["metadata"]["name"]): loaded for loaded in found}


@each_fault
def test_effects_and_walks_read_metrics_and_labels_that_exist(fault: Fault) -> None:
    effect = [fault.effect.query] if fault.effect else []
    for query in [*effect, *(step.query for step in fault.walk)]:
        result(parse(query.replace("$in", 'k8s_namespace_name="shop"')))


@each_fault
def test_alerts_are_of_rules_and_objectives_that_exist(fault: Fault, objects: dict[tuple[str, str], Any]) -> None:
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
def test_objects_have_what_is_changed(fault: Fault, objects: dict[tuple[str, str], Any]) -> None:
    for injection in fault.injections:
        if isinstance(injection, ObjectInjection) and injection.set:
            kind, _, name = injection.target.partition("/")
            for path, new in injection.set.items():
                found = objects[KINDS[kind], f"shop-{name}"]
                assert upkeep.change(found, path, new), f"{path} has this value already"
