"""What all dashboards have in common: variables, links between them, and annotations."""

from collections.abc import Sequence

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
from dashboards.promql import NAMESPACE, RELEASE, SCOPE, SERVICE, firing, legend, select

TITLES = {
    "overview": "Is the shop well?",
    "services": "Which service?",
    "service": "Why?",
    "orders": "Where do orders stop?",
    "stores": "Do the stores keep up?",
    "collector": "Is telemetry complete?",
}
"""The dashboards in the order in which an operator walks through them."""


class Section:
    """A row of panels with a title."""

    def __init__(self, title: str, *panels: Builder[Panel]) -> None:
        self.title = title
        self.panels = panels


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


def _annotation(name: str, color: str, expr: str, title: str) -> AnnotationQuery:
    query = AnnotationQuery().name(name).datasource(METRICS).enable(True).icon_color(color).placement(_VISIBLE)
    return query.expr(expr).step("15s").title_format(title)


def starts(name: str, color: str, by: tuple[str, ...], *matchers: str) -> AnnotationQuery:
    """Return the annotation that marks each new combination of labels among the processes."""
    present = f"count by ({', '.join(by)}) ({select(_EVERY_PROCESS, *matchers)}"
    return _annotation(name, color, f"{present}) unless {present} offset 2m)", f"{legend(*by)} started")


def _annotations() -> list[AnnotationQuery]:
    alerts = _annotation("Alerts", "red", firing(), "{{alertname}}")
    return [
        starts("Deployments", "blue", (SERVICE, "service_version")),
        alerts.text_format("{{service_name}} {{slo}} {{severity}}"),
    ]


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
        .annotations([*_annotations(), *annotations])
        .links([_to(other) for other in TITLES if other != name])
    )
    for section in sections:
        dashboard = dashboard.with_row(Row(section.title))
        for panel in section.panels:
            dashboard = dashboard.with_panel(panel)
    built = dashboard.build()
    # Links to a panel need an id that does not change with every start of Grafana.
    for index, found in enumerate(built.panels or [], start=1):
        found.id_val = index
    return built
