"""The alerts: each fires when it should and only then, and both places that evaluate them get the same rules."""

import os
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


@pytest.fixture(scope="session")
def promtool() -> str:
    script = HERE / "promtool.sh"
    version = re.findall(r"^version=(\S+)", script.read_text(), re.MULTILINE)[0]
    program = HERE.parents[1] / ".cache" / f"promtool-{version}"
    if not program.exists():
        if os.environ.get("REQUIRE_PROMTOOL"):
            pytest.fail(f"{program} is missing: make promtool builds it")
        pytest.skip("promtool is missing: make promtool builds it, with Go")
    return str(program)


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
