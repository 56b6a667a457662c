"""Alerts fire when they should and only then, from the same rules in both places; each method has an SLO."""

import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from chassis.rpc.serving import _SERVER_FAULTS
from chassis.telemetry import semconv
from shop_kit.reflection import contract, full_name

HERE = Path(__file__).resolve().parent
CHART = HERE.parents[1] / "charts" / "shop"
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "alert_cases.yaml").read_text())
EVERYTHING = {
    "observability": {"enabled": True, "prometheusRule": {"enabled": True}, "alertmanager": {"enabled": True}}
}
TESTED_SLOS = {"storefront": "storefront", "checkout": "place-order", "payment": "charge", "": ""}

Group = dict[str, Any]


def alerts_of(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [rule for rule in rules if "alert" in rule]


def identity(alert: dict[str, Any]) -> tuple[str, str]:
    return alert["alert"], alert["labels"].get("window", "")


def with_namespace(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{k8s_namespace_name="shop",{labels or "}"}'


def expectation(case: dict[str, Any], minute: int, firing: dict[str, int]) -> dict[str, Any]:
    """Return promtool's test that exactly so many alerts fire, by severity."""
    window = f',window="{case["window"]}"' if "window" in case else ""
    services = set(re.findall(r'service_name="([^"]+)"', str(case)))
    named = f',service_name=~"{"|".join(services)}"' if case["alert"] == "MetricsMissing" else ""
    alerts = f'ALERTS{{alertstate="firing",alertname="{case["alert"]}"{window}{named}}}'
    samples = [{"labels": f'{{severity="{severity}"}}', "value": count} for severity, count in firing.items()]
    return {"expr": f"count by (severity) ({alerts})", "eval_time": f"{minute}m", "exp_samples": samples}


def promtool_tests(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    title = f"{case['alert']}: {case.get('about', '')}"
    expected = [(case["before"], {}), (case["fires"], case["firing"]), (case["resolved"], {})]
    for name, series, times in (
        (title, case["series"], expected),
        (f"{title} (quiet)", case["quiet"]["series"], [(case["quiet"]["at"], {})]),
    ):
        yield {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": with_namespace(each), "values": values} for each, values in series.items()],
            "promql_expr_test": [expectation(case, minute, firing) for minute, firing in times],
        }


def slo_of(case: dict[str, Any]) -> str:
    """Return the SLO whose calls a case has, which are of one service; for other alerts the name is of no rule."""
    (service,) = set(re.findall(r'service_name="(\w+)"', str(case))) if case["alert"] == "ErrorBudgetBurn" else ("",)
    return TESTED_SLOS[service]


def rules_of(alert: tuple[str, str], slo: str, groups: list[Group]) -> Iterator[Group]:
    """Yield the groups of an alert, with its own rule and those that it depends on, without other SLOs."""
    every = [rule for group in groups for rule in group["rules"] if rule.get("labels", {}).get("slo", slo) == slo]
    needed = [rule for rule in alerts_of(every) if identity(rule) == alert]
    for rule in needed:  # which grows
        names = set(re.findall(r"[\w:]+", rule["expr"]))
        needed += [other for other in every if other.get("record") in names and other not in needed]
    for group in groups:
        if rules := [rule for rule in group["rules"] if rule in needed]:
            yield {**group, "rules": rules}


def test_every_alert_has_cases(rules: list[Any]) -> None:
    assert {(case["alert"], case.get("window", "")) for case in CASES} == {identity(each) for each in alerts_of(rules)}


def test_alerts_fire_as_they_should_and_resolve(rule_groups: Any, promtool: Any, tmp_path: Path) -> None:
    groups = rule_groups()

    def decided_by(case: dict[str, Any]) -> tuple[tuple[str, str], str]:
        return (case["alert"], case.get("window", "")), slo_of(case)

    files = []
    for number, ((alert, slo), cases) in enumerate(groupby(sorted(CASES, key=decided_by), key=decided_by)):
        rules = tmp_path / f"{number}.rules.yml"
        rules.write_text(yaml.safe_dump({"groups": list(rules_of(alert, slo, groups))}))
        tests = [test for case in cases for test in promtool_tests(case)]
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(
            yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": tests}, sort_keys=False)
        )
    promtool("test", "rules", *files)


def test_prometheus_accepts_its_configuration_and_rules(render: Any, promtool: Any, tmp_path: Path) -> None:
    files = render(EVERYTHING).one("ConfigMap", "shop-prometheus")["data"]
    (tmp_path / "rules.yml").write_text(files["rules.yml"])
    (tmp_path / "prometheus.yml").write_text(files["prometheus.yml"].replace("/etc/prometheus", str(tmp_path)))
    promtool("check", "config", "--lint=all", "--lint-fatal", tmp_path / "prometheus.yml")


def test_a_prometheus_rule_needs_no_bundled_stack(rules: list[Any], render: Any) -> None:
    values = {
        "telemetry": {"endpoint": "http://c:4317"},
        "observability": {
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "runbookUrl": "https://example.com/runbooks/",
        },
    }
    manifests = render(values)
    rule = manifests.one("PrometheusRule", "shop-rules")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert not manifests.has("Deployment", "shop-prometheus")
    alerts = [each for group in rule["spec"]["groups"] for each in alerts_of(group["rules"])]
    names = {each["alert"] for each in alerts}
    assert alerts[0]["annotations"]["runbook_url"] == f"https://example.com/runbooks/{alerts[0]['alert']}.md"
    assert {each["alert"] for each in alerts_of(rules)} - names == {"CollectorDown", "CollectorRefuses"}


def test_only_series_of_the_release_s_namespace_are_read(rules: list[Any]) -> None:
    for rule in rules:
        for selector in re.findall(r"\{([^}]*)\}", rule["expr"]):
            assert 'k8s_namespace_name="shop"' in selector or "job=" in selector, rule


def test_every_alert_says_what_to_do(rules: list[Any]) -> None:
    dashboards = {json.loads(file.read_text())["uid"] for file in (CHART / "dashboards").glob("*.json")}
    for alert in alerts_of(rules):
        annotations = alert["annotations"]
        assert alert["labels"].get("severity", "page") in {"page", "ticket"}
        assert alert["labels"]["k8s_namespace_name"] == "shop"
        assert annotations["summary"]
        assert annotations["description"]
        assert annotations["runbook_url"] == f"charts/shop/runbooks/{alert['alert']}.md"
        assert annotations["dashboard"].removeprefix("/d/") in dashboards


def test_alertmanager_inhibits_the_callers_of_a_service_that_burns(render: Any, values: dict[str, Any]) -> None:
    config = render(EVERYTHING).config("alertmanager", "alertmanager.yml")
    edges = set()
    for rule in config["inhibit_rules"]:
        source, target = (
            dict(re.findall(r'^(\w+)=~?"(.*)"$', "\n".join(rule[side]), re.MULTILINE))
            for side in ("source_matchers", "target_matchers")
        )
        if source["alertname"] == "CallsFail":
            assert (source["severity"], target) == ("page", {"alertname": "OrderOpenTooLong"})
            continue
        assert source["alertname"] == "ErrorBudgetBurn|CallsFail"
        if "service_name" in target:
            assert target["alertname"] == "ErrorBudgetBurn"
            assert source["severity"] == target["severity"]
            edges |= {(target["service_name"], callee) for callee in source["service_name"].split("|")}
        else:
            assert (source["severity"], target["severity"]) == ("page", "ticket")
            assert rule["equal"] == ["k8s_namespace_name", "alertname", "service_name", "slo"]
    assert edges == {
        (name, callee) for name, entry in values["services"].items() for callee in (entry or {}).get("calls", [])
    }


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
            {"series": f"rpc_server_call_duration_seconds_count{{{charges},{status}}}", "values": values}
            for status, values in series.items()
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
