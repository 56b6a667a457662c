"""Why? One service: its methods, callees, databases, pools, runtime and pods."""

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery
from grafana_foundation_sdk.models.dashboard import Dashboard

from chassis.telemetry import semconv
from dashboards import service_internals
from dashboards.frame import Section, new_dashboard, service_variable
from dashboards.links import signals_of
from dashboards.panels import METRICS, Column, Limits, Query, graph, table
from dashboards.promql import (
    INSTANCE,
    SERVER_FAULT,
    SERVICE,
    THIS_SERVICE,
    failed_share,
    label,
    legend,
    quantile,
    rate,
    requests,
    requests_failed,
    requests_quantile,
    select,
    select_rule,
    total,
)

_METHOD, _STATUS = label(semconv.RPC_METHOD), label(semconv.RPC_STATUS)
_ROUTE, _HTTP_STATUS = label(semconv.HTTP_ROUTE), label(semconv.HTTP_STATUS)
_CALLEE = label(semconv.SERVER_ADDRESS)
_SYSTEM = label(semconv.DB_SYSTEM)
_LINKS = signals_of("${service}")
_POD = legend(INSTANCE)
_LATENCY_OBJECTIVE = f"max by (slo) ({select_rule('slo:latency_objective:seconds', THIS_SERVICE)})"


def _served() -> Section:
    server, http = semconv.RPC_SERVER_DURATION, semconv.HTTP_SERVER_DURATION
    fault = f'{_STATUS}!="OK"'
    return Section(
        "What does it serve?",
        [
            graph(
                "Requests per second by method",
                "Good: as usual for the hour. A method that others retry has more than usual.",
                "reqps",
                Query(rate(server, _METHOD, THIS_SERVICE), legend(_METHOD)),
                Query(rate(http, _ROUTE, THIS_SERVICE), legend(_ROUTE)),
                links=_LINKS,
            ),
            graph(
                "Failures per second by method and status",
                "Everything that is not OK, mistakes of callers included. Good: no UNAVAILABLE, DEADLINE_EXCEEDED, "
                "INTERNAL or 5xx.",
                "reqps",
                Query(rate(server, f"{_METHOD}, {_STATUS}", THIS_SERVICE, fault), legend(_METHOD, _STATUS)),
                Query(
                    rate(http, f"{_ROUTE}, {_HTTP_STATUS}", THIS_SERVICE, f'{_HTTP_STATUS}=~"[45].."'),
                    legend(_ROUTE, _HTTP_STATUS),
                ),
                links=_LINKS,
            ),
            graph(
                "Duration by method, 99th percentile",
                "Good: steady, and each method below the objective of its SLO. Each dot is a traced call and links to "
                "its trace.",
                "s",
                Query(quantile(0.99, server, _METHOD, THIS_SERVICE), legend(_METHOD), exemplars=True),
                Query(quantile(0.99, http, _ROUTE, THIS_SERVICE), legend(_ROUTE), exemplars=True),
                Query(_LATENCY_OBJECTIVE, "objective of " + legend("slo"), limit=True),
                links=_LINKS,
            ),
        ],
    )


def _callees() -> Section:
    client = semconv.RPC_CLIENT_DURATION
    return Section(
        "Whom does it wait for?",
        [
            graph(
                "Failed calls by callee",
                "Share of the calls that this service makes. Good: 0. If only one callee fails, continue there.",
                "percentunit",
                Query(failed_share(client, _CALLEE, SERVER_FAULT, THIS_SERVICE), legend(_CALLEE)),
                limits=Limits(0.001, 0.01),
                links=_LINKS,
            ),
            graph(
                "Duration of calls by callee, 99th percentile",
                "As this service sees them. Good: well below its own durations.",
                "s",
                Query(quantile(0.99, client, _CALLEE, THIS_SERVICE), legend(_CALLEE), exemplars=True),
                links=_LINKS,
            ),
            graph(
                "Seconds per second spent on calls",
                "Time spent on each callee, on databases and on the mail relay: who this service waits for most. "
                "Good: as usual.",
                "none",
                Query(_time(client, _CALLEE), legend(_CALLEE)),
                Query(_time(semconv.DB_CLIENT_DURATION, _SYSTEM), legend(_SYSTEM)),
                Query(_time(semconv.SMTP_CLIENT_DURATION, SERVICE), "mail relay"),
                stacked=True,
                links=_LINKS,
            ),
        ],
    )


def _time(metric: semconv.Metric, by: str) -> str:
    return f"sum by ({by}) (rate({select(metric.series[2], THIS_SERVICE)}[$__rate_interval]))"


def _pods() -> Section:
    pod = f"{INSTANCE}, k8s_node_name, service_version"
    return Section(
        "Is it one pod?",
        [
            table(
                "Pods side by side",
                "Good: the rows look alike. One bad pod: look at its node and version, then delete it.",
                {INSTANCE: "Pod", "k8s_node_name": "Node", "service_version": "Version"},
                Column("Requests/s", requests(pod, THIS_SERVICE), "reqps"),
                Column("Failed", requests_failed(pod, THIS_SERVICE), "percentunit", Limits(0.001, 0.01)),
                Column("Median", requests_quantile(0.5, pod, THIS_SERVICE), "s"),
                Column("99th percentile", requests_quantile(0.99, pod, THIS_SERVICE), "s"),
                Column("In flight", total(semconv.ACTIVE_REQUESTS, pod, THIS_SERVICE), "none"),
                Column(
                    "Event-loop lag, p99", quantile(0.99, semconv.LOOP_LAG, pod, THIS_SERVICE), "s", Limits(0.05, 0.25)
                ),
                Column("CPU", rate(semconv.PROCESS_CPU, pod, THIS_SERVICE), "none", Limits(0.8, 0.95)),
                Column("Memory", total(semconv.PROCESS_MEMORY, pod, THIS_SERVICE), "bytes"),
            )
        ],
    )


def _restarts() -> AnnotationQuery:
    pods = f"count by ({INSTANCE}) ({select(semconv.PROCESS_MEMORY.series[0], THIS_SERVICE)}"
    return (
        AnnotationQuery()
        .name("New pods")
        .datasource(METRICS)
        .enable(True)
        .icon_color("purple")
        .placement("")
        .expr(f"{pods}) unless {pods} offset 2m)")
        .step("15s")
        .title_format(f"{_POD} started")
    )


def build() -> Dashboard:
    """Return the dashboard."""
    return new_dashboard(
        "service",
        "Finds the cause in one service.",
        _pods(),
        _served(),
        _callees(),
        service_internals.stores(),
        service_internals.process(),
        variables=[service_variable()],
        annotations=[_restarts()],
    )
