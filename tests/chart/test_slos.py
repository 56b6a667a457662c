"""SLOs: every method has one, values change them, and bad values are refused."""

import re
from pathlib import Path
from typing import Any

import yaml

from chassis.rpc.serving import _SERVER_FAULTS
from chassis.telemetry import semconv
from shop_kit.reflection import contract, full_name

CALLS = "rpc_server_call_duration_seconds_count"


def test_every_public_method_has_an_slo(values: dict[str, Any]) -> None:
    methods = {full_name(method) for method in contract()}
    slos = values["slos"].values()
    assert {slo["method"] for slo in slos if "method" in slo} == {name for name in methods if "internal" not in name}
    assert {slo["service"] for slo in slos if "method" not in slo} == {"storefront", "employee-api"}


def objectives(rule_groups: Any, **values: Any) -> dict[str, list[str]]:
    """Return the SLOs that are rendered, each with the severities of its two objectives."""
    found: dict[str, list[str]] = {}
    for group in rule_groups(**values):
        for rule in group["rules"]:
            if rule.get("record") == "slo:objective:ratio":
                found.setdefault(rule["labels"]["slo"], []).append(f"{rule['expr']} {rule['labels']['severity']}")
    return found


def test_slos_are_changed_and_removed_by_values_and_are_of_installed_services(rule_groups: Any) -> None:
    assert {"get-ads", "employee-api"} <= objectives(rule_groups).keys()
    values = {"charge": {"availability": 0.9, "severity": "page"}, "get-ads": None}
    changed = objectives(rule_groups, slos=values, services={"employee-api": None})
    assert changed["charge"] == ["vector(0.9) page", "vector(0.99) page"]
    assert not {"get-ads", "employee-api"} & changed.keys()
    assert "place-order" in changed


def test_every_bound_of_the_histograms_may_be_a_threshold(rule_groups: Any, values: dict[str, Any]) -> None:
    bounds = {f"bound-{index}": bound for index, bound in enumerate(semconv.SECONDS)}
    groups = rule_groups(slos={slo: {**values["slos"]["charge"], "latencySeconds": bounds[slo]} for slo in bounds})
    rules = [rule for group in groups for rule in group["rules"]]
    for slo, bound in bounds.items():
        (label,) = {
            label
            for rule in rules
            if rule.get("labels", {}).get("slo") == slo
            for label in re.findall(r'PaymentService/Charge",le=~"([^"]+)"', rule["expr"])
        }
        assert re.fullmatch(label.replace("\\\\", "\\"), f"{bound:g}")
        assert re.fullmatch(label.replace("\\\\", "\\"), str(float(bound)))


def test_rules_count_the_codes_that_make_a_server_span_an_error(rules: list[Any]) -> None:
    counted = {codes for rule in rules for codes in re.findall(r'status_code=~"([A-Z_|]+)"', rule["expr"])}
    assert {frozenset(codes.split("|")) - {"PEER_BROKEN", "CANCELLED"} for codes in counted} == {_SERVER_FAULTS}


def test_half_of_the_failures_that_may_be_leave_half_of_the_error_budget(
    rule_groups: Any, promtool: Any, tmp_path: Path
) -> None:
    charges = 'k8s_namespace_name="shop",service_name="payment",rpc_method="shop.PaymentService/Charge"'
    series = {'rpc_response_status_code="OK"': "0+9995x30", 'rpc_response_status_code="UNKNOWN"': "0+5x30"}
    query = 'round(slo:error_budget:remaining_ratio{slo="charge",objective="availability"}, 0.001)'
    labels = 'k8s_namespace_name="shop",objective="availability",service_name="payment",slo="charge"'
    test = {
        "interval": "1m",
        "input_series": [
            {"series": f"{CALLS}{{{charges},{status}}}", "values": values} for status, values in series.items()
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": f"{{{labels}}}", "value": 0.5}]}
        ],
    }
    groups = [group for group in rule_groups() if group["name"] in {"slo-rates", "slo-long-windows"}]
    rules = [
        rule for group in groups for rule in group["rules"] if rule.get("labels", {}).get("slo", "charge") == "charge"
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "slo", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    promtool("test", "rules", tmp_path / "test.yml")
