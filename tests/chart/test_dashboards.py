"""Dashboards query what is exported, by labels that exist, and link to each other."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Kind, Metric

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "charts/shop/dashboards").glob("*.json"))
WALK = ["overview", "services", "service", "orders", "stores", "collector"]
# The resource attributes that Prometheus adds to all series of a process.
RESOURCE = {
    "service_name",
    "service_version",
    "service_instance_id",
    "shop_release",
    "k8s_namespace_name",
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
RECORDED = (
    "slo:objective:ratio",
    "slo:latency_objective:seconds",
    "slo:errors:ratio_rate5m",
    "slo:errors:ratio_rate1h",
    "slo:error_budget:remaining_ratio",
)
OBJECTIVE = {"slo", "service_name", "objective", "k8s_namespace_name"}
ALERT = {"alertname", "alertstate", "severity", "service_name", "slo", "k8s_namespace_name"}
# Grafana's own variables, which need no definition.
BUILT_IN = {"__rate_interval", "__url_time_range", "__from", "__to", "__value.text", "__field.labels.service_name"}
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

each_dashboard = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def labels_of(metric: Metric) -> set[str]:
    own = {attribute.replace(".", "_") for attribute in metric.attributes}
    return RESOURCE | own | ({"le"} if metric.kind is Kind.HISTOGRAM else set())


KNOWN = {
    **{series: labels_of(metric) for metric in semconv.METRICS for series in metric.series},
    **{name: {"job", *labels} for name, labels in COLLECTOR.items()},
    **dict.fromkeys(RECORDED, OBJECTIVE),
    "ALERTS": ALERT,
    "": RESOURCE | {"__name__"},  # all series of the shop
}


def load(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text()))


def panels(file: Path) -> list[dict[str, Any]]:
    return [panel for panel in load(file)["panels"] if panel["type"] != "row"]


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
def _(expression: promql.ParenExpr) -> set[str]:
    return result(expression.expr)


@result.register
def _(expression: promql.BinaryExpr) -> set[str]:
    return result(expression.lhs) | result(expression.rhs)


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
        for argument in expression.args:
            yield from aggregated(argument, operator)
    elif isinstance(expression, promql.BinaryExpr):
        yield from aggregated(expression.lhs, operator)
        yield from aggregated(expression.rhs, operator)
    elif isinstance(expression, promql.ParenExpr):
        yield from aggregated(expression.expr, operator)


def queries(file: Path) -> Iterator[tuple[str, str]]:
    for panel in panels(file):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in load(file)["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def test_the_files_are_what_the_code_builds() -> None:
    subprocess.run([sys.executable, ROOT / "charts/dashboards", "--check"], check=True)


def test_every_question_has_a_dashboard() -> None:
    assert sorted(file.stem for file in FILES) == sorted(WALK)


@each_dashboard
def test_queries_use_metrics_and_labels_that_exist(file: Path) -> None:
    for title, query in queries(file):
        assert result(parse(query)) is not None, title


@each_dashboard
def test_a_query_for_a_missing_metric_or_label_is_found(file: Path) -> None:
    query = next(query for _, query in queries(file) if "by (" in query and "shop_release" in query)
    for broken in (
        re.sub(r"\b(\w+)\{", r"no_\1{", query, count=1),
        query.replace("by (", "by (no_label, ", 1),
        query.replace("shop_release", "release", 1),
    ):
        with pytest.raises(AssertionError):
            result(parse(broken))


@each_dashboard
def test_legends_and_columns_show_labels_of_their_series(file: Path) -> None:
    for panel in panels(file):
        for target in panel["targets"]:
            labels = result(parse(target["expr"]))
            assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= labels, panel["title"]
            if panel["type"] == "table":
                (renamed,) = [
                    each["options"]["renameByName"] for each in panel["transformations"] if "organize" in each["id"]
                ]
                assert {label for label in renamed if not label.startswith("Value")} == labels, panel["title"]


@each_dashboard
def test_every_panel_has_a_title_of_its_own_a_unit_and_says_what_is_good(file: Path) -> None:
    titles = [panel["title"] for panel in panels(file)]
    assert len(titles) == len(set(titles))
    for panel in panels(file):
        assert "Good: " in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_panels_that_incidents_lead_through_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/e2e"))
    incidents = import_module("incident_walks").INCIDENTS
    walked = {(question.dashboard, question.panel) for incident in incidents for question in incident.questions}
    assert walked
    assert walked <= {(file.stem, panel["title"]) for file in FILES for panel in panels(file)}


def test_reasons_to_be_empty_are_of_panels_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests/e2e"))
    assert set(import_module("dashboards").MAY_BE_EMPTY) <= {panel["title"] for file in FILES for panel in panels(file)}


@each_dashboard
def test_state_that_replicas_share_is_not_summed_over_them(file: Path) -> None:
    for title, query in queries(file):
        for metric, operator in aggregated(parse(query)):
            assert metric not in SHARED_STATE or operator == "max", title


def test_every_metric_is_shown() -> None:
    shown = {metric for file in FILES for _, query in queries(file) for metric, _ in aggregated(parse(query))}
    assert [metric.name for metric in semconv.METRICS if not shown & set(metric.series)] == []


@each_dashboard
def test_variables_are_defined_and_links_lead_to_dashboards(file: Path) -> None:
    dashboard, text = load(file), file.read_text()
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_][\w.]*)", text))
    assert used - BUILT_IN <= defined
    assert {link["url"] for link in dashboard["links"]} == {f"/d/shop-{other}" for other in WALK if other != file.stem}
    assert set(re.findall(r"/d/shop-(\w+)", text)) <= set(WALK)
    assert dashboard["uid"] == f"shop-{file.stem}"


@each_dashboard
def test_the_file_is_a_dashboard_to_grafana_s_own_library(file: Path) -> None:
    read = Dashboard.from_json(load(file))
    assert read.title == load(file)["title"]
    assert [panel.title for panel in read.panels or []] == [panel["title"] for panel in load(file)["panels"]]


def config_maps(manifests: Any) -> dict[str, dict[str, Any]]:
    found = [each for each in manifests.all("ConfigMap") if "-dashboard-" in each["metadata"]["name"]]
    return {each["metadata"]["name"]: each for each in found}


def rendered(manifests: Any) -> dict[str, dict[str, Any]]:
    contents = [each["data"] for each in config_maps(manifests).values()]
    return {name: json.loads(text) for content in contents for name, text in content.items()}


def test_a_grafana_of_ones_own_finds_the_dashboards_by_labels(render: Any) -> None:
    dashboards = {"enabled": True, "annotations": {"grafana_folder": "Shop"}}
    found = config_maps(render({"observability": {"dashboards": dashboards}}))
    assert sorted(found) == sorted(f"shop-dashboard-{name}" for name in WALK)
    for each in found.values():
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Shop"}
        assert len(json.dumps(each)) < 2**20
    assert config_maps(render()) == {}


def test_the_grafana_of_the_release_starts_with_the_first_question(render: Any) -> None:
    manifests = render({"observability": {"enabled": True}}, name="mine")
    container = manifests.one("Deployment", "mine-grafana")["spec"]["template"]["spec"]
    (volume,) = [volume for volume in container["volumes"] if volume["name"] == "dashboards"]
    mounted = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
    assert mounted == sorted(config_maps(manifests))
    environment = {each["name"]: each.get("value") for each in container["containers"][0]["env"]}
    home = Path(environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert rendered(manifests)[home.name]["title"] == "Is the shop well?"


def test_two_releases_have_dashboards_of_their_own(render: Any) -> None:
    observability = {"observability": {"dashboards": {"enabled": True}}}
    mine, other = (rendered(render(observability, name=name)) for name in ("mine", "other"))
    assert not mine.keys() & other.keys()
    assert not {each["uid"] for each in mine.values()} & {each["uid"] for each in other.values()}
    assert set(re.findall(r"/d/(\w+)-", json.dumps(mine))) == {"mine"}


def test_data_sources_are_chosen_by_name(render: Any) -> None:
    sources = {"metrics": "Mimir", "traces": "Tempo", "tracesType": "tempo", "logs": "My Loki"}
    dashboards = rendered(render({"observability": {"dashboards": {"enabled": True, "dataSources": sources}}}))
    for each in dashboards.values():
        variables = {variable["name"]: variable for variable in each["templating"]["list"]}
        chosen = {name: variables[name]["current"]["text"] for name in ("datasource", "traces", "logs")}
        assert chosen == {"datasource": "Mimir", "traces": "Tempo", "logs": "My Loki"}
        assert (variables["traces"]["query"], variables["traces_query"]["query"]) == ("tempo", "traceql")


def test_a_wrong_type_of_traces_is_rejected(render: Any) -> None:
    with pytest.raises(ValueError, match="tracesType"):
        render({"observability": {"dashboards": {"dataSources": {"tracesType": "zipkin"}}}})
