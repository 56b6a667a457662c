"""What all dashboards have in common: variables, links between them, and annotations."""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    ConstantVariable,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard as DashboardModel
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from chassis.telemetry import semconv
from dashboards.links import uid
from dashboards.panels import METRICS
from dashboards.promql import NAMESPACE, RELEASE, SCOPE, SERVICE, firing, select

TITLES = {
    "overview": "Is the shop well?",
    "services": "Which service?",
    "service": "Why?",
    "orders": "Where do orders stop?",
    "stores": "Do the stores keep up?",
    "collector": "Is telemetry complete?",
}
"""The dashboards in the order in which an operator walks through them."""


@dataclass(frozen=True)
class Section:
    """A row of panels with a title."""

    title: str
    panels: Sequence[Builder[Panel]]


# Beside the variables, where the SDK's default is a menu.
_VISIBLE = ""
_EVERY_PROCESS = semconv.PROCESS_MEMORY.series[0]


def _source(name: str, label: str, kind: str, current: str) -> DatasourceVariable:
    # The chart replaces kind and current for a Grafana of your own.
    option = VariableOption(text=current, value=current.lower())
    return DatasourceVariable(name).label(label).type(kind).current(option)


def values(name: str, label: str, query: str) -> QueryVariable:
    """Return a variable with the values that `label_values(…)` finds."""
    return (
        QueryVariable(name)
        .label(label)
        .datasource(METRICS)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def service_variable() -> QueryVariable:
    """Return the variable that selects a service."""
    return values("service", "Service", f"label_values({_EVERY_PROCESS}{{{','.join(SCOPE)}}}, {SERVICE})")


def _variables() -> list[Builder[VariableModel]]:
    return [
        _source("datasource", "Metrics", "prometheus", "Prometheus"),
        _source("traces", "Traces", "jaeger", "Jaeger"),
        _source("logs", "Logs", "loki", "Loki"),
        # The type of a search in Jaeger; the chart replaces it for Tempo.
        ConstantVariable("traces_query").value("search"),
        values("namespace", "Namespace", f"label_values({_EVERY_PROCESS}, {NAMESPACE})"),
        values("release", "Release", f'label_values({_EVERY_PROCESS}{{{NAMESPACE}="$namespace"}}, {RELEASE})'),
    ]


def _to(name: str) -> DashboardLink:
    link = DashboardLink(TITLES[name]).type(DashboardLinkType.LINK).url(f"/d/{uid(name)}")
    return link.include_vars(True).keep_time(True).placement(_VISIBLE)


def _deployments() -> AnnotationQuery:
    versions = f"count by ({SERVICE}, service_version) ({select(_EVERY_PROCESS)}"
    return (
        AnnotationQuery()
        .name("Deployments")
        .datasource(METRICS)
        .enable(True)
        .icon_color("blue")
        .placement(_VISIBLE)
        .expr(f"{versions}) unless {versions} offset 2m)")
        .step("15s")
        .title_format("{{service_name}} {{service_version}} started")
    )


def _alerts() -> AnnotationQuery:
    return (
        AnnotationQuery()
        .name("Alerts")
        .datasource(METRICS)
        .enable(True)
        .icon_color("red")
        .placement(_VISIBLE)
        .expr(firing())
        .step("15s")
        .title_format("{{alertname}}")
        .text_format("{{service_name}} {{slo}} {{severity}}")
    )


def new_dashboard(
    name: str,
    description: str,
    *sections: Section,
    variables: Sequence[QueryVariable] = (),
    annotations: Sequence[AnnotationQuery] = (),
) -> DashboardModel:
    """Return the dashboard of `name.json`: its sections, and links to all others."""
    dashboard = (
        Dashboard(TITLES[name])
        .uid(uid(name))
        .description(description)
        .tags(["shop"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .variables([*_variables(), *variables])
        .annotations([_deployments(), _alerts(), *annotations])
        .links([_to(other) for other in TITLES if other != name])
    )
    for section in sections:
        dashboard = dashboard.with_row(Row(section.title))
        for panel in section.panels:
            dashboard = dashboard.with_panel(panel)
    built = dashboard.build()
    # Links to a panel need an id that does not change with every start of Grafana.
    for index, each in enumerate(built.panels or [], start=1):
        each.id_val = index
    return built
