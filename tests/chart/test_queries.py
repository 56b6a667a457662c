"""Queries of dashboards, rules and runbooks read what is exported, by labels that exist."""

import json
import re
from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind, Metric
from shop_lab.incidents import upkeep
from shop_lab.incidents.catalogue import Fault, ObjectInjection, load_all

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
RUNBOOKS = sorted((CHART / "runbooks").glob("*.md"))
# The resource attributes that Prometheus adds to all series of a process.
RESOURCE = {
    "service_name",
    "service_version",
    "service_instance_id",
    "shop_release",
    "k8s_namespace_name",
    "k8s_cronjob_name",
    "k8s_node_name",
}
# The collector's own metrics in Prometheus's format, and their labels.
PER_SIGNAL = ("spans", "metric_points", "log_records")
COLLECTOR = {
    **{
        f"otelcol_receiver_{what}_{signal}_total": {"receiver"}
        for what in ("accepted", "refused")
        for signal in PER_SIGNAL
    },
    **{
        f"otelcol_exporter_{what}_{signal}_total": {"exporter"}
        for what in ("sent", "send_failed", "enqueue_failed")
        for signal in PER_SIGNAL
    },
    "otelcol_exporter_queue_size": {"exporter", "data_type"},
    "otelcol_exporter_queue_capacity": {"exporter", "data_type"},
    "otelcol_process_memory_rss_bytes": set(),
    "otelcol_process_cpu_seconds_total": set(),
    "otelcol_process_uptime_seconds_total": set(),
}
OBJECTIVE = {"slo", "service_name", "objective", "severity", "k8s_namespace_name"}
RECORDED = {
    **dict.fromkeys(("slo:objective:ratio", "slo:latency_objective:seconds"), OBJECTIVE),
    **dict.fromkeys(("slo:requests:rate5m", "slo:errors:rate5m", "slo:error_budget:remaining_ratio"), OBJECTIVE),
    **{f"slo:errors:ratio_rate{window}": OBJECTIVE for window in ("5m", "30m", "1h", "2h", "6h", "1d", "3d")},
    **dict.fromkeys(("peer:errors:rate2m", "peer:errors:ratio_rate2m"), RESOURCE | {"peer", "rpc_method"}),
    **dict.fromkeys(("instance:requests:rate5m", "instance:errors:rate5m"), RESOURCE),
}
ALERT = {"alertname", "alertstate", "severity", "service_name", "slo", "k8s_namespace_name"}
SHARED_STATE = {
    metric.series[0]
    for metric in (
        semconv.ORDERS,
        semconv.OLDEST_OPEN_ORDER,
        semconv.OUTBOX_BACKLOG,
        semconv.OUTBOX_AGE,
        semconv.DEAD_LETTERS,
        semconv.FUTURE_ORDERS,
        semconv.MISMATCHES,
        semconv.RECONCILED_ORDERS,
        semconv.LETTERS,
        semconv.OLDEST_LETTER,
    )
}

FAULTS = load_all()
KINDS = {"deployment": "Deployment", "networkpolicy": "NetworkPolicy"}

each_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)


def labels_of(metric: Metric) -> set[str]:
    own = {attribute.replace(".", "_") for attribute in metric.attributes}
    return RESOURCE | own | ({"le"} if metric.kind is Kind.HISTOGRAM else set())


KNOWN = {
    **{series: labels_of(metric) for metric in semconv.METRICS for series in metric.series},
    **{name: {"job", *labels} for name, labels in COLLECTOR.items()},
    **RECORDED,
    "ALERTS": ALERT,
    "up": {"job"},
    "": RESOURCE | {"__name__", "job", "receiver", "exporter"},  # series of several names
}


def parse(query: str) -> Any:
    """Return the syntax tree of a query; raise ValueError if it is not PromQL."""
    return promql.parse(query.replace("$__rate_interval", "1m"))


def selected(selector: Any) -> set[str]:
    """Return the labels of a metric; fail if it is unknown or has no label that the selector matches."""
    name = selector.name or ""
    assert name in KNOWN, f"nothing exports {name}"
    assert {matcher.name for matcher in selector.matchers.matchers} <= KNOWN[name], name
    return KNOWN[name]


@singledispatch
def result(expression: object) -> set[str]:
    """Return the labels that the series of a result may have; fail if the query uses one that does not exist."""
    assert isinstance(expression, promql.NumberLiteral | promql.StringLiteral), expression
    return set()


@result.register
def _(expression: promql.VectorSelector) -> set[str]:
    return selected(expression)


@result.register
def _(expression: promql.MatrixSelector) -> set[str]:
    return selected(expression.vector_selector)


@result.register
def _(expression: promql.ParenExpr | promql.SubqueryExpr) -> set[str]:
    return result(expression.expr)


@result.register
def _(expression: promql.BinaryExpr) -> set[str]:
    labels = result(expression.lhs) | result(expression.rhs)
    matching = expression.modifier and expression.modifier.matching
    assert not matching or set(matching.labels) <= labels, f"no label of {matching}"
    return labels


@result.register
def _(expression: promql.AggregateExpr) -> set[str]:
    inner = result(expression.expr)
    if expression.param is not None:  # topk and bottomk return series as they are
        return inner
    by = set(expression.modifier.labels) if expression.modifier else set()
    assert by <= inner, f"no label {by - inner}"
    return by


@result.register
def _(expression: promql.Call) -> set[str]:
    function = expression.func.name
    inner = set().union(*(result(argument) for argument in expression.args))
    if function == "histogram_quantile":
        assert "le" in inner
        return inner - {"le"}
    if function not in {"label_replace", "label_join"}:
        return inner
    strings = [argument.val for argument in expression.args if isinstance(argument, promql.StringLiteral)]
    sources = strings[2:3] if function == "label_replace" else strings[2:]
    assert set(sources) <= inner, f"no label {sources}"
    return inner | {strings[0]}


def aggregated(expression: Any, operator: str = "") -> Iterator[tuple[str, str]]:
    """Yield each metric with the aggregation that is nearest around it."""
    if isinstance(expression, promql.VectorSelector):
        yield expression.name or "", operator
    elif isinstance(expression, promql.MatrixSelector):
        yield expression.vector_selector.name or "", operator
    elif isinstance(expression, promql.AggregateExpr):
        yield from aggregated(expression.expr, str(expression.op))
    elif isinstance(expression, promql.Call):
        # How many samples there are is no value of the metric.
        operator = "count" if expression.func.name == "count_over_time" else operator
        for argument in expression.args:
            yield from aggregated(argument, operator)
    elif isinstance(expression, promql.BinaryExpr):
        yield from aggregated(expression.lhs, operator)
        yield from aggregated(expression.rhs, operator)
    elif isinstance(expression, promql.ParenExpr | promql.SubqueryExpr):
        yield from aggregated(expression.expr, operator)


def targets(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the panel and the target of each query of a dashboard's panels."""
    for panel in json.loads(file.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel, target


def queries(file: Path) -> list[str]:
    """Return the queries of a dashboard, those of its annotations included."""
    annotations = json.loads(file.read_text())["annotations"]["list"]
    return [target["expr"] for _, target in targets(file)] + [annotation["expr"] for annotation in annotations]


@each_dashboard
def test_dashboards_read_metrics_and_labels_that_exist(file: Path) -> None:
    for query in queries(file):
        result(parse(query))


def test_rules_read_metrics_and_labels_that_exist(rules: list[Any]) -> None:
    assert {rule["record"] for rule in rules if "record" in rule} == set(RECORDED)
    for rule in rules:
        result(parse(rule["expr"]))


def test_an_autoscaler_reads_one_number_of_metrics_and_labels_that_exist(render: Any) -> None:
    scaling = {"enabled": True, "keda": {"requestsInFlight": 20, "prometheusUrl": "http://mine"}}
    manifests = render({"services": {"ad": {"autoscaling": scaling}}})
    (trigger,) = manifests.one("ScaledObject", "shop-ad")["spec"]["triggers"]
    assert result(parse(trigger["metadata"]["query"])) == set()


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_runbooks_read_metrics_and_labels_that_exist(page: Path) -> None:
    found = re.findall(r"^```promql\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    for query in found:
        result(parse(query))


@each_dashboard
def test_a_query_for_a_missing_metric_or_label_is_found(file: Path) -> None:
    query = next(query for query in queries(file) if "by (" in query and "shop_release" in query)
    for broken in (
        re.sub(r"\b(\w+)\{", r"no_\1{", query, count=1),
        query.replace("by (", "by (no_label, ", 1),
        query.replace("shop_release", "release", 1),
    ):
        with pytest.raises(AssertionError):
            result(parse(broken))


@each_dashboard
def test_legends_and_columns_show_labels_of_their_series(file: Path) -> None:
    for panel, target in targets(file):
        labels = result(parse(target["expr"]))
        assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= labels, panel["title"]
        if panel["type"] == "table":
            (organize,) = [step["options"] for step in panel["transformations"] if "organize" in step["id"]]
            shown = {label for label in organize["renameByName"] if not label.startswith("Value")}
            assert shown == labels, panel["title"]


def test_state_that_replicas_share_is_not_summed_over_them(rules: list[Any]) -> None:
    alerts = [rule["expr"] for rule in rules if "alert" in rule]
    for query in [*alerts, *(query for file in DASHBOARDS for query in queries(file))]:
        for metric, operator in aggregated(parse(query)):
            assert metric not in SHARED_STATE or operator in {"max", "count"}, query


def test_every_metric_is_shown() -> None:
    shown = {metric for file in DASHBOARDS for query in queries(file) for metric, _ in aggregated(parse(query))}
    assert [metric.name for metric in semconv.METRICS if not shown & set(metric.series)] == []


def test_shared_state_has_alerts(rules: list[Any]) -> None:
    read = {metric for rule in rules if "alert" in rule for metric, _ in aggregated(parse(rule["expr"]))}
    without = {metric.series[0] for metric in (semconv.ORDERS, semconv.OUTBOX_BACKLOG, semconv.RECONCILED_ORDERS)}
    assert SHARED_STATE - without <= read


@each_fault
def test_effects_and_walks_read_metrics_and_labels_that_exist(fault: Fault) -> None:
    effect = [fault.effect.query] if fault.effect else []
    for query in [*effect, *(step.query for step in fault.walk)]:
        result(parse(query.replace("$in", 'k8s_namespace_name="shop"')))


@each_fault
def test_alerts_are_of_rules_and_objectives_that_exist(fault: Fault, rules: list[Any]) -> None:
    names = {rule["alert"] for rule in rules if "alert" in rule}
    slos = {rule["labels"]["slo"] for rule in rules if "slo" in rule.get("labels", {})}
    expected = fault.expected
    for alert in filter(None, (expected.first, expected.page, *expected.may_fire, *expected.must_not_fire)):
        name, _, subject = alert.rstrip(")").partition("(")
        assert name in names, alert
        assert name != "ErrorBudgetBurn" or subject in slos, alert
    assert expected.within <= fault.seconds or not expected.first


@each_fault
def test_objects_have_what_is_changed(fault: Fault, render: Any) -> None:
    changed = [injection for injection in fault.injections if isinstance(injection, ObjectInjection)]
    for injection in changed:
        kind, _, name = injection.target.partition("/")
        found = render({"lab": {"enabled": True}}).one(KINDS[kind], f"shop-{name}")
        for path, new in injection.set.items():
            assert upkeep.change(found, path, new), f"{path} has this value already"
