"""Dashboards and alerts query only metrics that the code or the collector exports.

Dashboards count the failures that the code counts.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chassis import semconv
from chassis.serving import _SERVER_FAULTS

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD_FOLDER = ROOT / "charts" / "shop" / "dashboards"
DASHBOARDS = sorted(DASHBOARD_FOLDER.glob("*.json"))
SOURCES = [*ROOT.glob("services/*/src/**/*.py"), *ROOT.glob("employee-api/src/**/*.py")]
# The name that the collector's spanmetrics connector derives from its default namespace.
COLLECTOR_METRICS = {"traces_span_metrics_calls_total"}
ALERTS = ROOT / "charts" / "shop" / "files" / "observability" / "alerts.yaml"
GAUGES_OF_SHARED_STATE = (
    "checkout_orders",
    "checkout_outbox_backlog",
    "checkout_oldest_open_order_age",
    "checkout_dead_letters",
    "checkout_future_orders",
    "email_letters",
    "email_oldest_queued_letter_age",
)


def prometheus_names(name: str, unit: str, kind: str) -> set[str]:
    """Return the series that Prometheus's OTLP receiver makes of an instrument."""
    suffix = {"By": "_bytes", "s": "_seconds"}.get(unit, "")
    base = name.replace(".", "_") + suffix
    if kind == "histogram":
        return {f"{base}_{part}" for part in ("bucket", "count", "sum")}
    return {f"{base}_total" if kind == "counter" else base}


def instruments(source: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, unit and kind of each instrument that a module creates."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            kind = re.fullmatch(r"create_(?:observable_)?(counter|gauge|histogram|up_down_counter)", node.func.attr)
            if kind and node.args and isinstance(node.args[0], ast.Constant):
                unit = next((keyword.value for keyword in node.keywords if keyword.arg == "unit"), None)
                yield str(node.args[0].value), str(getattr(unit, "value", "")), kind[1]


def exported_names() -> set[str]:
    names = {name for source in SOURCES for found in instruments(source) for name in prometheus_names(*found)}
    names |= {series for metric in semconv.METRICS for series in metric.series}
    return names | COLLECTOR_METRICS


def queries(dashboard: Path) -> Iterator[tuple[str, str]]:
    """Yield title and PromQL of each target, and the label queries of the variables."""
    content: dict[str, Any] = json.loads(dashboard.read_text())
    for panel in content["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in content["templating"]["list"]:
        yield variable["name"], variable["query"]["query"]


def alerts() -> dict[str, str]:
    """Return the PromQL of each alert."""
    groups: dict[str, Any] = yaml.safe_load(ALERTS.read_text())
    return {rule["alert"]: rule["expr"] for group in groups["groups"] for rule in group["rules"]}


def metric_names(query: str) -> set[str]:
    """Return the metrics in a query: the names that labels in braces, a range or a list of labels do not belong to."""
    without_labels = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)|\"[^\"]*\"", " ", query)
    words = re.findall(r"\b[a-z_]{2,}\b(?!\s*\()", without_labels.partition("label_values(")[2] or without_labels)
    return {word for word in words if word not in {"le", "service_name", "by", "unless", "and", "or"}}


def test_the_code_exports_the_metrics_that_this_test_reads() -> None:
    assert exported_names() >= {
        "rpc_server_call_duration_seconds_bucket",
        "process_memory_usage_bytes",
        "checkout_orders",
        "checkout_oldest_open_order_age_seconds",
        "checkout_order_changes_total",
    }


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda file: file.stem)
def test_dashboards_query_metrics_that_are_exported(dashboard: Path) -> None:
    exported = exported_names()
    for title, query in queries(dashboard):
        names = metric_names(query)
        assert names, title
        assert names <= exported, title


@pytest.mark.parametrize(("alert", "query"), alerts().items())
def test_alerts_query_metrics_that_are_exported(alert: str, query: str) -> None:
    names = metric_names(query)
    assert names, alert
    assert names <= exported_names()


@pytest.mark.parametrize(
    "gauge",
    [
        "checkout_dead_letters",
        "checkout_outbox_backlog",
        "checkout_future_orders",
        "shop_store_volume_usage_bytes",
        "NEEDS_REFUND",
        "NEEDS_REVIEW",
        "reconciliation_mismatches",
    ],
)
def test_what_needs_an_operator_raises_an_alert(gauge: str) -> None:
    assert [alert for alert, query in alerts().items() if gauge in query]


def test_prometheus_evaluates_the_alerts(render: Any) -> None:
    files = render({"observability": {"enabled": True}}).one("ConfigMap", "shop-prometheus")["data"]
    assert yaml.safe_load(files["alerts.yml"])["groups"]
    assert yaml.safe_load(files["prometheus.yml"])["rule_files"] == ["/etc/prometheus/alerts.yml"]


def test_the_failure_panel_counts_the_codes_that_make_a_server_span_an_error() -> None:
    (query,) = [
        query for title, query in queries(DASHBOARD_FOLDER / "services.json") if title == "Share of failed calls"
    ]
    (codes,) = re.findall(r'rpc_response_status_code=~"([^"]+)"', query)
    assert sorted(codes.split("|")) == sorted(_SERVER_FAULTS)


def test_gauges_of_shared_state_are_not_summed_over_replicas() -> None:
    all_queries = [query for dashboard in DASHBOARDS for _, query in queries(dashboard)] + list(alerts().values())
    shared = [query for query in all_queries if any(name in query for name in GAUGES_OF_SHARED_STATE)]
    assert len(shared) == 12
    assert [query for query in shared if not re.match(r"max( by \(\w+\) )?\(", query)] == []
