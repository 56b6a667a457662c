"""Why? One service: its methods, callees, databases, pools, runtime and pods."""

from functools import partial

from chassis.telemetry import semconv
from dashboards import service_internals
from dashboards.frame import Section, new_dashboard, service_variable, starts
from dashboards.links import signals_of
from dashboards.panels import Column, Limits, Query, graph, table
from dashboards.promql import (
    INSTANCE,
    SERVER_FAULT,
    SERVICE,
    THIS_SERVICE,
    failed_share,
    label,
    legend,
    observed,
    quantile,
    rate,
    requests,
    requests_failed,
    requests_quantile,
    select_rule,
    total,
)

_METHOD, _STATUS = label(semconv.RPC_METHOD), label(semconv.RPC_STATUS)
_ROUTE, _HTTP_STATUS = label(semconv.HTTP_ROUTE), label(semconv.HTTP_STATUS)
_CALLEE = label(semconv.SERVER_ADDRESS)
_SYSTEM = label(semconv.DB_SYSTEM)
_graph = partial(graph, links=signals_of("${service}"))
_LATENCY_OBJECTIVE = f"max by (slo) ({select_rule('slo:latency_objective:seconds', THIS_SERVICE)})"

_SERVER, _HTTP = semconv.RPC_SERVER_DURATION, semconv.HTTP_SERVER_DURATION
_FAULT = f'{_STATUS}!="OK"'
_SERVED = Section(
    "What does it serve?",
    _graph(
        "Requests per second by method",
        "Good: as usual for the hour. A method that others retry has more than usual.",
        "reqps",
        Query(rate(_SERVER, _METHOD, THIS_SERVICE), legend(_METHOD)),
        Query(rate(_HTTP, _ROUTE, THIS_SERVICE), legend(_ROUTE)),
    ),
    _graph(
        "Failures per second by method and status",
        "Everything that is not OK, mistakes of callers included. Good: no UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL "
        "or 5xx.",
        "reqps",
        Query(rate(_SERVER, f"{_METHOD}, {_STATUS}", THIS_SERVICE, _FAULT), legend(_METHOD, _STATUS)),
        Query(
            rate(_HTTP, f"{_ROUTE}, {_HTTP_STATUS}", THIS_SERVICE, f'{_HTTP_STATUS}=~"[45].."'),
            legend(_ROUTE, _HTTP_STATUS),
        ),
    ),
    _graph(
        "Duration by method, 99th percentile",
        "Good: steady, and each method below the objective of its SLO. Each dot is a traced call and links to its "
        "trace.",
        "s",
        Query(quantile(0.99, _SERVER, _METHOD, THIS_SERVICE), legend(_METHOD), exemplars=True),
        Query(quantile(0.99, _HTTP, _ROUTE, THIS_SERVICE), legend(_ROUTE), exemplars=True),
        Query(_LATENCY_OBJECTIVE, "objective of " + legend("slo"), limit=True),
    ),
)

_CLIENT = semconv.RPC_CLIENT_DURATION
_CALLEES = Section(
    "Whom does it wait for?",
    _graph(
        "Failed calls by callee",
        "Share of the calls that this service makes. Good: 0. If only one callee fails, continue there.",
        "percentunit",
        Query(failed_share(_CLIENT, _CALLEE, SERVER_FAULT, THIS_SERVICE), legend(_CALLEE)),
        limits=Limits(0.001, 0.01),
    ),
    _graph(
        "Duration of calls by callee, 99th percentile",
        "As this service sees them. Good: well below its own durations.",
        "s",
        Query(quantile(0.99, _CLIENT, _CALLEE, THIS_SERVICE), legend(_CALLEE), exemplars=True),
    ),
    _graph(
        "Seconds per second spent on calls",
        "Time spent on each callee, on databases and on the mail relay: who this service waits for most. Good: as "
        "usual.",
        "none",
        Query(observed(_CLIENT, _CALLEE, THIS_SERVICE), legend(_CALLEE)),
        Query(observed(semconv.DB_CLIENT_DURATION, _SYSTEM, THIS_SERVICE), legend(_SYSTEM)),
        Query(observed(semconv.SMTP_CLIENT_DURATION, SERVICE, THIS_SERVICE), "mail relay"),
        stacked=True,
    ),
)

_POD = f"{INSTANCE}, k8s_node_name, service_version"
_PODS = Section(
    "Is it one pod?",
    table(
        "Pods side by side",
        "Good: the rows look alike. One bad pod: look at its node and version, then delete it.",
        {INSTANCE: "Pod", "k8s_node_name": "Node", "service_version": "Version"},
        Column("Requests/s", requests(_POD, THIS_SERVICE), "reqps"),
        Column("Failed", requests_failed(_POD, THIS_SERVICE), "percentunit", Limits(0.001, 0.01)),
        Column("Median", requests_quantile(0.5, _POD, THIS_SERVICE), "s"),
        Column("99th percentile", requests_quantile(0.99, _POD, THIS_SERVICE), "s"),
        Column("In flight", total(semconv.ACTIVE_REQUESTS, _POD, THIS_SERVICE), "none"),
        Column("Event-loop lag, p99", quantile(0.99, semconv.LOOP_LAG, _POD, THIS_SERVICE), "s", Limits(0.05, 0.25)),
        Column("CPU", rate(semconv.PROCESS_CPU, _POD, THIS_SERVICE), "none", Limits(0.8, 0.95)),
        Column("Memory", total(semconv.PROCESS_MEMORY, _POD, THIS_SERVICE), "bytes"),
    ),
)

DASHBOARD = new_dashboard(
    "service",
    "Finds the cause in one service.",
    _PODS,
    _SERVED,
    _CALLEES,
    service_internals.STORES,
    service_internals.PROCESS,
    variables=[service_variable()],
    annotations=[starts("New pods", "purple", (INSTANCE,), THIS_SERVICE)],
)
