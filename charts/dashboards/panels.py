"""Panels with the conventions that all dashboards share."""

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboard_builders
from grafana_foundation_sdk.builders import nodegraph, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import table as tables
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.links import Link

METRICS = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT = 8
_GOOD, _WARNING, _BAD = "green", "orange", "red"


@dataclass(frozen=True)
class Limits:
    """Values at which a panel turns orange and red; a red one below the orange one means that less is worse."""

    warning: float
    bad: float

    def steps(self) -> list[dashboard.Threshold]:
        """Return Grafana's steps, in ascending order."""
        if self.bad < self.warning:
            steps = [(None, _BAD), (self.bad, _WARNING), (self.warning, _GOOD)]
        else:
            steps = [(None, _GOOD), (self.warning, _WARNING), (self.bad, _BAD)]
        return [dashboard.Threshold(value, color) for value, color in steps]


@dataclass(frozen=True)
class Query:
    """A PromQL query of a graph.

    Attributes:
        expr: of the query.
        legend: name of each series, in which `{{label}}` stands for a label's value.
        exemplars: show traced calls as dots that link to their traces.
        limit: draw it as a dashed red line, which others should not reach.
    """

    expr: str
    legend: str
    exemplars: bool = False
    limit: bool = False


@dataclass(frozen=True)
class Column:
    """A column of numbers in a table."""

    title: str
    expr: str
    unit: str
    limits: Limits | None = None


def _thresholds(limits: Limits | None) -> dashboard_builders.ThresholdsConfig:
    steps = limits.steps() if limits else [dashboard.Threshold(None, _GOOD)]
    return dashboard_builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    limits: Limits | None = None,
    links: Sequence[Link] = (),
    stacked: bool = False,
    width: int = 8,
) -> timeseries.Panel:
    """Return a graph over time; limits are drawn as dashed lines."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .unit(unit)
        .min(0)
        .height(HEIGHT)
        .span(width)
        .fill_opacity(30 if stacked else 0)
        .show_points(common.VisibilityMode.NEVER)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
        )
        .thresholds(_thresholds(limits))
        .data_links([link.build() for link in links])
    )
    if limits:
        style = common_builders.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(style)
    if stacked:
        panel = panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for index, query in enumerate(queries):
        ref = chr(ord("A") + index)
        target = prometheus.Dataquery().ref_id(ref).expr(query.expr).legend_format(query.legend)
        panel = panel.with_target(target.range().exemplar(query.exemplars))
        if query.limit:
            panel = panel.override_by_query(
                ref,
                [
                    _property("custom.lineStyle", {"fill": "dash", "dash": [10, 10]}),
                    _property("color", {"mode": "fixed", "fixedColor": _BAD}),
                ],
            )
    return panel


def number(
    title: str,
    description: str,
    unit: str,
    expr: str,
    *,
    legend: str = "",
    limits: Limits | None = None,
    width: int = 4,
) -> stat.Panel:
    """Return the present values of a query in large digits."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(METRICS)
        .unit(unit)
        .height(4)
        .span(width)
        .no_value("0")
        .thresholds(_thresholds(limits))
        .color_mode(common.BigValueColorMode.BACKGROUND if limits else common.BigValueColorMode.NONE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(prometheus.Dataquery().ref_id("A").expr(expr).legend_format(legend).instant())
    )


def table(
    title: str,
    description: str,
    keys: dict[str, str],
    *columns: Column,
    links: Sequence[Link] = (),
    height: int = HEIGHT,
    width: int = 24,
) -> tables.Panel:
    """Return a table with a row for each combination of labels.

    Args:
        title: of the panel.
        description: of the panel.
        keys: titles of the labels that all queries have in common, in order; `links` belong to the first one.
        columns: one query each.
        links: see `keys`.
        height: in grid units.
        width: in grid units.
    """
    panel = tables.Panel().title(title).description(description).datasource(METRICS).height(height).span(width)
    panel = panel.unit("short").thresholds(_thresholds(None)).no_value("")
    names = dict(keys)
    for index, column in enumerate(columns):
        ref = chr(ord("A") + index)
        names["Value" if len(columns) == 1 else f"Value #{ref}"] = column.title
        target = prometheus.Dataquery().ref_id(ref).expr(column.expr).instant().format(PromQueryFormat.TABLE)
        panel = panel.with_target(target).override_by_name(column.title, _cells(column))
    if links:
        first = next(iter(keys.values()))
        panel = panel.override_by_name(first, [_property("links", [link.build().build() for link in links])])
    order = {name: index for index, name in enumerate(names)}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    return panel.transformations(
        [
            dashboard.DataTransformerConfig(id_val="merge", options={}),
            dashboard.DataTransformerConfig(id_val="organize", options=organize),
        ]
    )


def _cells(column: Column) -> list[dashboard.DynamicConfigValue]:
    cells = [_property("unit", column.unit), _property("decimals", 2)]
    if column.limits:
        cells.append(_property("thresholds", {"mode": "absolute", "steps": column.limits.steps()}))
        cells.append(_property("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
    return cells


def service_map(title: str, description: str, unit: str, edges: str, *, width: int) -> nodegraph.Panel:
    """Return circles and arrows.

    Args:
        title: of the panel.
        description: of the panel.
        unit: of the values, which stand at the arrows; a circle shows the sum of the arrows that lead to it.
        edges: query with the labels `id`, `source` and `target`.
        width: in grid units.
    """
    panel = nodegraph.Panel().title(title).description(description).datasource(METRICS).height(14).span(width)
    target = prometheus.Dataquery().ref_id("edges").expr(edges).instant().format(PromQueryFormat.TABLE)
    organize = {"excludeByName": {"Time": True}, "indexByName": {}, "renameByName": {"Value": "mainstat"}}
    transformation = dashboard.DataTransformerConfig(id_val="organize", options=organize)
    return panel.unit(unit).with_target(target).transformations([transformation])
