"""The alerts: each fires when it should and only then, and both places that evaluate them get the same rules."""

import re
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis import semconv
from chassis.serving import _SERVER_FAULTS

HERE = Path(__file__).resolve().parent
CHART = HERE.parents[1] / "charts" / "shop"
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "alert_cases.yaml").read_text())
EVERYTHING = {"observability": {"enabled": True, "prometheusRule": {"enabled": True}}}
BUDGET = "slo:error_budget:remaining_ratio"
TESTED_SLOS = {"storefront", "place-order", "charge"}
SHARED_STATE = (
    semconv.ORDERS,
    semconv.OLDEST_OPEN_ORDER,
    semconv.OUTBOX_AGE,
    semconv.DEAD_LETTERS,
    semconv.FUTURE_ORDERS,
    semconv.LETTERS,
    semconv.OLDEST_LETTER,
    semconv.MISMATCHES,
)
RESOURCE_LABELS = {"service_name", "service_instance_id", "k8s_namespace_name"}
OTHER_LABELS = {"le", "job", "slo", "objective", "severity", "window", "__name__"}

Group = dict[str, Any]


def groups_of(render: Any, values: dict[str, Any] | None = None) -> list[Group]:
    manifests = render({**EVERYTHING, **(values or {})})
    return list(manifests.one("PrometheusRule", "shop-rules")["spec"]["groups"])


def rules_of(render: Any) -> list[dict[str, Any]]:
    return [rule for group in groups_of(render) for rule in group["rules"]]


def alerts_of(render: Any) -> list[dict[str, Any]]:
    return [rule for rule in rules_of(render) if "alert" in rule]


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


def run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def without_budget(name: str, groups: list[Group]) -> Iterator[Group]:
    """Yield the group of an alert and those it depends on, without the error budget, whose month takes minutes."""
    for group in groups:
        if group["name"].partition("-")[0] == name.partition("-")[0]:
            rules = [rule for rule in group["rules"] if rule.get("record") != BUDGET]
            yield {**group, "rules": rules}


def test_every_alert_has_cases(render: Any) -> None:
    assert {(case["alert"], case.get("window", "")) for case in CASES} == {identity(each) for each in alerts_of(render)}


def test_alerts_fire_as_they_should_and_resolve(render: Any, promtool: str, tmp_path: Path) -> None:
    shipped = groups_of(render)
    others = {slo for rule in rules_of(render) if (slo := rule.get("labels", {}).get("slo"))} - TESTED_SLOS
    reduced = groups_of(render, {"slos": dict.fromkeys(others)})
    group_names = {rule["alert"]: group["name"] for group in shipped for rule in group["rules"] if "alert" in rule}
    files = []
    for name, cases in groupby(CASES, key=lambda case: group_names[case["alert"]]):
        rules = tmp_path / f"{name}.rules.yml"
        rules.write_text(yaml.safe_dump({"groups": list(without_budget(name, reduced))}))
        tests = [test for case in cases for test in promtool_tests(case)]
        files.append(tmp_path / f"{name}.yml")
        files[-1].write_text(
            yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": tests}, sort_keys=False)
        )
    run(promtool, "test", "rules", *map(str, files))


def test_prometheus_accepts_its_configuration_and_rules(render: Any, promtool: str, tmp_path: Path) -> None:
    files = render(EVERYTHING).one("ConfigMap", "shop-prometheus")["data"]
    (tmp_path / "rules.yml").write_text(files["rules.yml"])
    (tmp_path / "prometheus.yml").write_text(files["prometheus.yml"].replace("/etc/prometheus", str(tmp_path)))
    run(promtool, "check", "config", "--lint=all", "--lint-fatal", str(tmp_path / "prometheus.yml"))


def test_half_of_the_failures_that_may_be_leave_half_of_the_error_budget(
    render: Any, promtool: str, tmp_path: Path
) -> None:
    calls = 'rpc_server_call_duration_seconds_count{service_name="payment",rpc_method="shop.PaymentService/Charge",%s}'
    series = {'rpc_response_status_code="OK"': "0+9995x30", 'rpc_response_status_code="UNKNOWN"': "0+5x30"}
    query = f'round({BUDGET}{{slo="charge",objective="availability"}}, 0.001)'
    labels = 'k8s_namespace_name="shop",objective="availability",service_name="payment",slo="charge"'
    test = {
        "interval": "1m",
        "input_series": [
            {"series": with_namespace(calls % status), "values": values} for status, values in series.items()
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": f"{{{labels}}}", "value": 0.5}]}
        ],
    }
    groups = [group for group in groups_of(render) if group["name"] in {"slo-rates", "slo-long-windows"}]
    rules = [
        rule for group in groups for rule in group["rules"] if rule.get("labels", {}).get("slo", "charge") == "charge"
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "slo", "rules": rules}]}))
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    run(promtool, "test", "rules", str(tmp_path / "test.yml"))


def test_both_places_evaluate_the_same_rules(render: Any) -> None:
    bundled = yaml.safe_load(render(EVERYTHING).one("ConfigMap", "shop-prometheus")["data"]["rules.yml"])
    assert bundled["groups"] == groups_of(render)


def test_a_prometheus_rule_needs_no_bundled_stack(render: Any) -> None:
    values = {
        "telemetry": {"endpoint": "http://c:4317"},
        "observability": {"prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}},
    }
    manifests = render(values)
    rule = manifests.one("PrometheusRule", "shop-rules")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert not manifests.has("Deployment", "shop-prometheus")
    names = {each["alert"] for group in rule["spec"]["groups"] for each in group["rules"] if "alert" in each}
    assert {each["alert"] for each in alerts_of(render)} - names == {"CollectorDown", "CollectorRefuses"}


def test_every_public_method_has_an_slo(values: dict[str, Any]) -> None:
    protos = HERE.parents[1] / "protos" / "shop"
    methods = {
        f"shop.{service}/{method}"
        for text in (file.read_text() for file in protos.glob("*.proto"))
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
        for method in re.findall(r"^ +rpc (\w+)", body, re.MULTILINE)
    }
    assert len(methods) > 10
    slos = values["slos"].values()
    assert {slo["method"] for slo in slos if "method" in slo} == methods
    assert {slo["service"] for slo in slos if "method" not in slo} == {"storefront", "employee-api"}


def objectives(render: Any, **slos: Any) -> dict[str, list[str]]:
    """Return the SLOs that are rendered, each with the severities of its two objectives."""
    found: dict[str, list[str]] = {}
    for group in groups_of(render, slos):
        for rule in group["rules"]:
            if rule.get("record") == "slo:objective:ratio":
                found.setdefault(rule["labels"]["slo"], []).append(f"{rule['expr']} {rule['labels']['severity']}")
    return found


def test_slos_are_changed_and_removed_by_values(render: Any) -> None:
    changed = objectives(render, slos={"charge": {"availability": 0.9, "severity": "page"}, "get-ads": None})
    assert changed["charge"] == ["vector(0.9) page", "vector(0.99) page"]
    assert "get-ads" not in changed
    assert "place-order" in changed


def test_an_slo_of_a_service_that_is_not_installed_has_no_effect(render: Any) -> None:
    assert "employee-api" in objectives(render)
    assert "employee-api" not in objectives(render, services={"employee-api": None})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slos": {"charge": {"latencySeconds": 0.3}}}, r"slos\.charge\.latencySeconds: 0\.3 is none of the bounds"),
        ({"slos": {"storefront": {"method": "shop.A/B"}}}, r"slos\.storefront\.method: storefront serves HTTP"),
        ({"slos": {"charge": {"route": "/"}}}, r"slos\.charge\.route: payment serves gRPC"),
        ({"slos": {"mine": {"latency": 0.5}}}, "service"),
        ({"slos": {"charge": {"availability": 99.9}}}, "availability"),
        ({"slos": {"charge": {"window": "month"}}}, "window"),
        ({"observability": {"prometheusRule": {"enabled": True}}}, r"prometheusRule\.enabled: there are no metrics"),
        ({"observability": {"alertmanager": {"pageReceiver": "me"}}}, r'pageReceiver: there is no receiver "me"'),
    ],
)
def test_bad_values_are_refused_with_the_name_of_the_field(render: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render(values)


@pytest.mark.parametrize("bound", semconv.SECONDS)
def test_every_bound_of_the_histograms_may_be_a_threshold(render: Any, bound: float) -> None:
    rules = render({**EVERYTHING, "slos": {"charge": {"latencySeconds": bound}}}).one("PrometheusRule", "shop-rules")
    (label,) = re.findall(r'PaymentService/Charge\\?",le=~"([^"]+)"', str(rules).replace("\\\\", "\\"))
    assert re.fullmatch(label.replace("\\\\", "\\"), f"{bound:g}")
    assert re.fullmatch(label.replace("\\\\", "\\"), str(float(bound)))


def test_rules_count_the_codes_that_make_a_server_span_an_error(render: Any) -> None:
    counted = {codes for rule in rules_of(render) for codes in re.findall(r'status_code=~"([A-Z_|]+)"', rule["expr"])}
    assert [set(codes.split("|")) for codes in counted] == [_SERVER_FAULTS]


def test_rules_read_series_and_labels_that_exist(render: Any) -> None:
    recorded = {rule["record"] for rule in rules_of(render) if "record" in rule}
    exported = {series for metric in semconv.METRICS for series in metric.series} | recorded | {"up"}
    labels = {key.replace(".", "_") for metric in semconv.METRICS for key in metric.attributes}
    for rule in rules_of(render):
        names, selected = set(re.findall(r"([a-z_:0-9]+)\{", rule["expr"])), set()
        for selector in re.findall(r"\{([^}]*)\}", rule["expr"]):
            selected |= set(re.findall(r'([a-z_0-9]+)(?:=~|!~|!=|=)"', selector))
        for grouping in re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", rule["expr"]):
            selected |= set(grouping.split(", "))
        assert names <= exported, rule
        assert selected <= labels | RESOURCE_LABELS | OTHER_LABELS, rule


def test_only_series_of_the_release_s_namespace_are_read(render: Any) -> None:
    for rule in rules_of(render):
        for selector in re.findall(r"\{([^}]*)\}", rule["expr"]):
            assert 'k8s_namespace_name="shop"' in selector or "job=" in selector, rule


def test_gauges_of_shared_state_are_not_summed_over_replicas(render: Any) -> None:
    for metric in SHARED_STATE:
        (series,) = metric.series
        queries = [rule["expr"] for rule in alerts_of(render) if f"{series}{{" in rule["expr"]]
        assert queries, series
        for query in queries:
            assert re.search(rf"max( by \(\w+\))? ?\((max_over_time\()?{series}\{{", query), query


def test_every_alert_says_what_to_do(render: Any) -> None:
    dashboards = {yaml.safe_load(file.read_text())["uid"] for file in (CHART / "dashboards").glob("*.json")}
    for alert in alerts_of(render):
        annotations = alert["annotations"]
        assert alert["labels"].get("severity", "page") in {"page", "ticket"}
        assert annotations["summary"]
        assert annotations["description"]
        assert annotations["runbook_url"] == f"charts/shop/runbooks/{alert['alert']}.md"
        assert annotations["dashboard"].removeprefix("/d/") in dashboards


def test_runbooks_are_linked_where_they_are_published(render: Any) -> None:
    base = "https://example.com/runbooks/"
    rule = render({"observability": {**EVERYTHING["observability"], "runbookUrl": base}}).one(
        "PrometheusRule", "shop-rules"
    )
    links = re.findall(r"'runbook_url': '([^']+)'", str(rule))
    assert "https://example.com/runbooks/DeadLetters.md" in links


def test_alertmanager_inhibits_the_callers_of_a_service_that_burns(render: Any, values: dict[str, Any]) -> None:
    config = yaml.safe_load(render(EVERYTHING).one("ConfigMap", "shop-alertmanager")["data"]["alertmanager.yml"])
    edges = set()
    for rule in config["inhibit_rules"]:
        source, target = (
            dict(re.findall(r'^(\w+)=~?"(.*)"$', "\n".join(rule[side]), re.MULTILINE))
            for side in ("source_matchers", "target_matchers")
        )
        assert source["alertname"] == target["alertname"] == "ErrorBudgetBurn"
        if "service_name" in target:
            assert source["severity"] == target["severity"]
            edges |= {(target["service_name"], callee) for callee in source["service_name"].split("|")}
        else:
            assert (source["severity"], target["severity"]) == ("page", "ticket")
            assert rule["equal"] == ["k8s_namespace_name", "slo"]
    assert edges == {
        (name, callee) for name, entry in values["services"].items() for callee in (entry or {}).get("calls", [])
    }


def test_alertmanager_sends_what_values_say(render: Any) -> None:
    settings = {
        "receivers": [{"name": "phone", "webhook_configs": [{"url_file": "/etc/alertmanager-secrets/url"}]}],
        "pageReceiver": "phone",
        "ticketReceiver": "phone",
        "secret": "receivers",
        "egress": [{"ports": [{"port": 443}]}],
    }
    manifests = render({"observability": {"enabled": True, "alertmanager": settings}})
    config = yaml.safe_load(manifests.one("ConfigMap", "shop-alertmanager")["data"]["alertmanager.yml"])
    assert config["receivers"] == settings["receivers"]
    assert config["route"]["routes"][0]["receiver"] == "phone"
    pod = manifests.pod("alertmanager")["spec"]
    assert {"name": "secrets", "secret": {"secretName": "receivers"}} in pod["volumes"]
    assert "/etc/alertmanager-secrets" in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert settings["egress"][0] in manifests.one("NetworkPolicy", "shop-alertmanager")["spec"]["egress"]


def test_prometheus_sends_alerts_to_alertmanager_only_if_it_is_installed(render: Any) -> None:
    for enabled in (True, False):
        manifests = render({"observability": {"enabled": True, "alertmanager": {"enabled": enabled}}})
        config = yaml.safe_load(manifests.one("ConfigMap", "shop-prometheus")["data"]["prometheus.yml"])
        assert manifests.has("Deployment", "shop-alertmanager") == enabled
        assert ("alerting" in config) == enabled
        egress = manifests.one("NetworkPolicy", "shop-prometheus")["spec"]["egress"]
        assert (9093 in [port["port"] for rule in egress for port in rule["ports"]]) == enabled
