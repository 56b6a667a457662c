"""Dashboards lead on and are found by Grafana; their queries, those of rules and runbooks read what is exported."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from chassis.telemetry import semconv
from shop_kit.promql import RECORDED, parse, result

CHART = Path(__file__).resolve().parents[2] / "charts/shop"
DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
RUNBOOKS = sorted((CHART / "runbooks").glob("*.md"))
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

each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)


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


WALK = ["overview", "services", "service", "orders", "stores", "collector"]
# Grafana's own variables, which need no definition.
BUILT_IN = {"__rate_interval", "__url_time_range", "__from", "__to", "__value.text", "__field.labels.service_name"}


def panels(file: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row"]


@each_dashboard
def test_every_panel_has_a_title_of_its_own_a_unit_and_says_what_is_good(file: Path) -> None:
    titles = [panel["title"] for panel in panels(file)]
    assert len(titles) == len(set(titles))
    for panel in panels(file):
        assert "Good: " in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


@each_dashboard
def test_variables_are_defined_and_links_lead_to_dashboards(file: Path) -> None:
    text = file.read_text()
    dashboard = json.loads(text)
    defined = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z_][\w.]*)", text))
    assert used - BUILT_IN <= defined
    assert {link["url"] for link in dashboard["links"]} == {f"/d/shop-{other}" for other in WALK if other != file.stem}
    assert set(re.findall(r"/d/shop-(\w+)", text)) <= set(WALK)
    assert dashboard["uid"] == f"shop-{file.stem}"


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
