"""Which service? Rate, errors, duration and saturation of each service in one row, and who calls whom."""

from functools import partial

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard
from dashboards.links import OF_ROW, OF_SERIES
from dashboards.panels import Column, Limits, Query, graph, service_map, table
from dashboards.promql import (
    INSTANCE,
    SERVER_FAULT,
    SERVICE,
    failed_share,
    label,
    largest,
    quantile,
    rate,
    requests,
    requests_failed,
    requests_quantile,
    select,
    share,
    total,
)

_CALLEE = label(semconv.SERVER_ADDRESS)
_FAILED = Limits(0.001, 0.01)
_LAG = Limits(0.05, 0.25)
_graph = partial(graph, links=OF_SERIES)
_LEGEND = "{{service_name}}"

# Each port of a process has a limit of its own.
_PORT = f"{SERVICE}, {INSTANCE}, {label(semconv.PORT_NAME)}"
_SATURATION = share(total(semconv.ACTIVE_REQUESTS, _PORT), largest(semconv.REQUEST_LIMIT, _PORT))
_BUSIEST = f"max by ({SERVICE}) ({_SATURATION})"

_TABLE = Section(
    "Rate, errors, duration, saturation",
    table(
        "Services",
        "One row per service. Good: no colour. Look first at the service that fails or is slow while those that "
        "it calls are not. Click it to see why.",
        {SERVICE: "Service"},
        Column("Requests/s", requests(SERVICE), "reqps"),
        Column("Failed", requests_failed(SERVICE), "percentunit", _FAILED),
        Column("Median", requests_quantile(0.5, SERVICE), "s"),
        Column("99th percentile", requests_quantile(0.99, SERVICE), "s", Limits(0.5, 2)),
        Column("In flight of limit", _BUSIEST, "percentunit", Limits(0.5, 0.8)),
        Column("Shed/s", rate(semconv.SHED_REQUESTS, SERVICE), "reqps", Limits(0.01, 1)),
        Column("Event-loop lag, p99", quantile(0.99, semconv.LOOP_LAG, SERVICE), "s", _LAG),
        Column("CPU", rate(semconv.PROCESS_CPU, SERVICE), "none"),
        Column("Memory", total(semconv.PROCESS_MEMORY, SERVICE), "bytes"),
        Column("Pods", f"count by ({SERVICE}) ({select(semconv.PROCESS_MEMORY.series[0])})", "none"),
        links=OF_ROW,
        height=12,
    ),
)

# Addresses are names of Kubernetes Services, which begin with the release.
_ADDRESS = "(?:$release-)?([^.]*).*"
_SYSTEM = label(semconv.DB_SYSTEM)
_CALLS = rate(semconv.RPC_CLIENT_DURATION, f"{SERVICE}, {_CALLEE}")
_STATEMENTS = rate(semconv.DB_CLIENT_DURATION, f"{SERVICE}, {_SYSTEM}")
_EDGES = " or ".join(
    f'label_join(label_replace(label_replace({query}, "source", "$1", "{SERVICE}", "(.*)"), '
    f'"target", "$1", "{target}", "{regex}"), "id", " -> ", "source", "target")'
    for query, target, regex in ((_CALLS, _CALLEE, _ADDRESS), (_STATEMENTS, _SYSTEM, "(.*)"))
)
_MAP = Section(
    "Who calls whom",
    service_map(
        "Service map",
        "Who calls whom, and how often per second. Good: every arrow that you expect is there. A caller without "
        "its arrow does not reach its callee.",
        "calls/s",
        _EDGES,
        width=12,
    ),
    table(
        "Calls between services",
        "As the callers see them, network and waiting included. Good: none failed. If the callee's own row above "
        "is fine, look at the network between the two.",
        {SERVICE: "Caller", _CALLEE: "Callee"},
        Column("Calls/s", _CALLS, "reqps"),
        Column(
            "Failed",
            failed_share(semconv.RPC_CLIENT_DURATION, f"{SERVICE}, {_CALLEE}", SERVER_FAULT),
            "percentunit",
            _FAILED,
        ),
        Column("99th percentile", quantile(0.99, semconv.RPC_CLIENT_DURATION, f"{SERVICE}, {_CALLEE}"), "s"),
        links=OF_ROW,
        height=14,
        width=12,
    ),
)

_OVER_TIME = Section(
    "Over time",
    _graph(
        "Requests per second",
        "Calls and HTTP requests that each service serves. Good: as usual for the hour.",
        "reqps",
        Query(requests(SERVICE), _LEGEND),
    ),
    _graph(
        "Failed requests",
        "Share of requests that failed by the service's fault; a rejected request is the caller's mistake and not "
        "counted. Good: below 0.1 %.",
        "percentunit",
        Query(requests_failed(SERVICE), _LEGEND),
        limits=_FAILED,
    ),
    _graph(
        "Duration, 99th percentile",
        "Good: steady. Each dot is a traced call and links to its trace.",
        "s",
        Query(requests_quantile(0.99, SERVICE), _LEGEND, exemplars=True),
    ),
    _graph(
        "In flight, share of the limit",
        "Of the busiest pod. Good: below 50 %. At 100 % the pod sheds calls.",
        "percentunit",
        Query(_BUSIEST, _LEGEND),
        limits=Limits(0.5, 1),
    ),
    _graph(
        "Event-loop lag, 99th percentile",
        "How late timers run. Good: below 50 ms. More means that a process lacks CPU, or that something blocks it.",
        "s",
        Query(quantile(0.99, semconv.LOOP_LAG, SERVICE), _LEGEND),
        limits=_LAG,
    ),
    _graph(
        "CPU of the busiest pod",
        "Cores. Good: below 0.8. A Python process cannot use more than one core.",
        "none",
        Query(f"max by ({SERVICE}) ({rate(semconv.PROCESS_CPU, f'{SERVICE}, {INSTANCE}')})", _LEGEND),
        limits=Limits(0.8, 0.95),
    ),
)

DASHBOARD = new_dashboard("services", "Finds the service that causes trouble.", _TABLE, _MAP, _OVER_TIME)
