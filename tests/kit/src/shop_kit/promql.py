"""PromQL that is checked without a server: it reads metrics that something exports, by labels that they have."""

from collections.abc import Sequence
from typing import Any

import promql_parser as promql

from chassis.telemetry import semconv
from chassis.telemetry.semconv import Metric

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


def labels_of(metric: Metric) -> set[str]:
    own = {attribute.replace(".", "_") for attribute in metric.attributes}
    return RESOURCE | own | ({"le"} if metric.kind == "histogram" else set())


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


def result(expression: Any) -> set[str]:
    """Return the labels that the series of a result may have; fail if the query uses one that does not exist."""
    match expression:
        case promql.VectorSelector() | promql.MatrixSelector():
            return selected(getattr(expression, "vector_selector", expression))
        case promql.ParenExpr() | promql.SubqueryExpr():
            return result(expression.expr)
        case promql.BinaryExpr():
            labels = result(expression.lhs) | result(expression.rhs)
            matching = expression.modifier and expression.modifier.matching
            assert not matching or set(matching.labels) <= labels, f"no label of {matching}"
            return labels
        case promql.AggregateExpr():
            inner = result(expression.expr)
            by = set(expression.modifier.labels) if expression.modifier else set()
            assert by <= inner, f"no label {by - inner}"
            return by if expression.param is None else inner  # topk and bottomk return series as they are
        case promql.Call():
            return _result_of_call(expression.func.name, expression.args)
    assert isinstance(expression, promql.NumberLiteral | promql.StringLiteral), expression
    return set()


def _result_of_call(function: str, arguments: Sequence[Any]) -> set[str]:
    inner = set().union(*map(result, arguments))
    if function == "histogram_quantile":
        assert "le" in inner
        return inner - {"le"}
    if function not in {"label_replace", "label_join"}:
        return inner
    target, *sources = [argument.val for argument in arguments if isinstance(argument, promql.StringLiteral)]
    sources = sources[1:2] if function == "label_replace" else sources[1:]
    assert set(sources) <= inner, f"no label {sources}"
    return inner | {target}
