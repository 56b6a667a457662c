"""Why? One service: its methods, callees, databases, pools, runtime and pods."""

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery
from grafana_foundation_sdk.models.dashboard import Dashboard

from chassis import semconv
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
    largest,
    mean,
    quantile,
    rate,
    requests,
    requests_failed,
    requests_quantile,
    select,
    total,
)

_METHOD, _STATUS = label(semconv.RPC_METHOD), label(semconv.RPC_STATUS)
_ROUTE, _HTTP_STATUS = label(semconv.HTTP_ROUTE), label(semconv.HTTP_STATUS)
_CALLEE, _ERROR = label(semconv.SERVER_ADDRESS), label(semconv.ERROR_TYPE)
_SYSTEM, _OPERATION = label(semconv.DB_SYSTEM), label(semconv.DB_OPERATION)
_POOL, _STORE = label(semconv.POOL_NAME), label(semconv.FLUSH_STORE)
_LINKS = signals_of("${service}")
_POD = f"{{{{{INSTANCE}}}}}"


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
                Query(rate(server, _METHOD, THIS_SERVICE), f"{{{{{_METHOD}}}}}"),
                Query(rate(http, _ROUTE, THIS_SERVICE), f"{{{{{_ROUTE}}}}}"),
                links=_LINKS,
            ),
            graph(
                "Failures per second by method and status",
                "Everything that is not OK, mistakes of callers included. Good: no UNAVAILABLE, DEADLINE_EXCEEDED, "
                "INTERNAL or 5xx.",
                "reqps",
                Query(
                    rate(server, f"{_METHOD}, {_STATUS}", THIS_SERVICE, fault), f"{{{{{_METHOD}}}}} {{{{{_STATUS}}}}}"
                ),
                Query(
                    rate(http, f"{_ROUTE}, {_HTTP_STATUS}", THIS_SERVICE, f'{_HTTP_STATUS}=~"[45].."'),
                    f"{{{{{_ROUTE}}}}} {{{{{_HTTP_STATUS}}}}}",
                ),
                links=_LINKS,
            ),
            graph(
                "Duration by method, 99th percentile",
                "Good: steady. Each dot is a traced call and links to its trace.",
                "s",
                Query(quantile(0.99, server, _METHOD, THIS_SERVICE), f"{{{{{_METHOD}}}}}", exemplars=True),
                Query(quantile(0.99, http, _ROUTE, THIS_SERVICE), f"{{{{{_ROUTE}}}}}", exemplars=True),
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
                Query(failed_share(client, _CALLEE, SERVER_FAULT, THIS_SERVICE), f"{{{{{_CALLEE}}}}}"),
                limits=Limits(0.001, 0.01),
                links=_LINKS,
            ),
            graph(
                "Duration of calls by callee, 99th percentile",
                "As this service sees them. Good: well below its own durations.",
                "s",
                Query(quantile(0.99, client, _CALLEE, THIS_SERVICE), f"{{{{{_CALLEE}}}}}", exemplars=True),
                links=_LINKS,
            ),
            graph(
                "Seconds per second spent on calls",
                "Time spent on each callee, on databases and on the mail relay: who this service waits for most. "
                "Good: as usual.",
                "none",
                Query(_time(client, _CALLEE), f"{{{{{_CALLEE}}}}}"),
                Query(_time(semconv.DB_CLIENT_DURATION, _SYSTEM), f"{{{{{_SYSTEM}}}}}"),
                Query(_time(semconv.SMTP_CLIENT_DURATION, SERVICE), "mail relay"),
                stacked=True,
                links=_LINKS,
            ),
        ],
    )


def _time(metric: semconv.Metric, by: str) -> str:
    return f"sum by ({by}) (rate({select(metric.series[2], THIS_SERVICE)}[$__rate_interval]))"


def _stores() -> Section:
    db = semconv.DB_CLIENT_DURATION
    return Section(
        "Is its store slow?",
        [
            graph(
                "Duration of database operations, 99th percentile",
                "Good: a few milliseconds. One slow operation: a lock or a plan. All slow: the server or its disk.",
                "s",
                Query(
                    quantile(0.99, db, f"{_SYSTEM}, {_OPERATION}", THIS_SERVICE),
                    f"{{{{{_SYSTEM}}}}} {{{{{_OPERATION}}}}}",
                ),
                limits=Limits(0.1, 1),
                links=_LINKS,
            ),
            graph(
                "Failed database operations per second",
                "Good: 0. The error type tells a lost connection from a timeout.",
                "ops",
                Query(
                    rate(db, f"{_SYSTEM}, {_ERROR}", THIS_SERVICE, f'{_ERROR}!=""'),
                    f"{{{{{_SYSTEM}}}}} {{{{{_ERROR}}}}}",
                ),
                links=_LINKS,
            ),
            graph(
                "Connections in use",
                "Per pool, of all pods; the dashed line is the size of the pools. Good: below it.",
                "none",
                Query(
                    total(semconv.POOL_CONNECTIONS, _POOL, THIS_SERVICE, f'{label(semconv.POOL_STATE)}="used"'),
                    f"{{{{{_POOL}}}}}",
                ),
                Query(total(semconv.POOL_MAX, _POOL, THIS_SERVICE), f"{{{{{_POOL}}}}} size", limit=True),
                links=_LINKS,
            ),
            graph(
                "Operations that wait for a connection",
                "Good: 0. If all connections are in use, operations hold them for too long.",
                "none",
                Query(total(semconv.POOL_PENDING, _POOL, THIS_SERVICE), f"{{{{{_POOL}}}}}"),
                limits=Limits(1, 10),
                links=_LINKS,
            ),
            graph(
                "Wait for a connection, 99th percentile",
                "Good: below 1 ms.",
                "s",
                Query(quantile(0.99, semconv.POOL_WAIT, _POOL, THIS_SERVICE), f"{{{{{_POOL}}}}}"),
                limits=Limits(0.01, 0.1),
                links=_LINKS,
            ),
            graph(
                "Flush, 99th percentile",
                "Duration of a batch of writes with its flush to disk. Good: below 50 ms. More: a lock, or a slow "
                "disk.",
                "s",
                Query(quantile(0.99, semconv.FLUSH_DURATION, _STORE, THIS_SERVICE), f"{{{{{_STORE}}}}}"),
                limits=Limits(0.05, 0.5),
                links=_LINKS,
            ),
            graph(
                "Writes per flush, mean",
                "Good: grows with the load. Near 1 at high load: writes do not share flushes.",
                "none",
                Query(mean(semconv.FLUSH_SIZE, _STORE, THIS_SERVICE), f"{{{{{_STORE}}}}}"),
            ),
            graph(
                "Cache lookups per second",
                "Good: mostly hits. Stale values are served when their source does not respond.",
                "ops",
                Query(
                    rate(
                        semconv.CACHE_LOOKUPS,
                        f"{label(semconv.CACHE_NAME)}, {label(semconv.CACHE_RESULT)}",
                        THIS_SERVICE,
                    ),
                    f"{{{{{label(semconv.CACHE_NAME)}}}}} {{{{{label(semconv.CACHE_RESULT)}}}}}",
                ),
            ),
            graph(
                "Letters to the mail relay, 99th percentile",
                "Duration of a transmission; only e-mail has it. Good: below 1 s.",
                "s",
                Query(quantile(0.99, semconv.SMTP_CLIENT_DURATION, _ERROR, THIS_SERVICE), f"sent {{{{{_ERROR}}}}}"),
                limits=Limits(1, 5),
                links=_LINKS,
            ),
        ],
    )


def _runtime() -> Section:
    return Section(
        "Is its process starved?",
        [
            graph(
                "Event-loop lag by pod, 99th percentile",
                "How late timers run. Good: below 50 ms. More means that the process lacks CPU, or that something "
                "blocks it.",
                "s",
                Query(quantile(0.99, semconv.LOOP_LAG, INSTANCE, THIS_SERVICE), _POD),
                limits=Limits(0.05, 0.25),
                links=_LINKS,
            ),
            graph(
                "CPU by pod",
                "Cores. Good: below 0.8. Lag without CPU time: other processes of the node have the CPU.",
                "none",
                Query(rate(semconv.PROCESS_CPU, INSTANCE, THIS_SERVICE), _POD),
                limits=Limits(0.8, 0.95),
            ),
            graph(
                "Memory by pod",
                "Good: steady. A pod over its limit is killed.",
                "bytes",
                Query(total(semconv.PROCESS_MEMORY, INSTANCE, THIS_SERVICE), _POD),
            ),
            graph(
                "In flight by pod",
                "Requests being served; above the dashed line a pod sheds. Good: far below it, and even.",
                "none",
                Query(total(semconv.ACTIVE_REQUESTS, INSTANCE, THIS_SERVICE), _POD),
                Query(largest(semconv.REQUEST_LIMIT, SERVICE, THIS_SERVICE), "limit", limit=True),
                links=_LINKS,
            ),
            graph(
                "Requests shed and retried per second",
                "Shed: refused because too many were in flight. Retried: received again after a failed attempt. "
                "Good: 0.",
                "reqps",
                Query(rate(semconv.SHED_REQUESTS, SERVICE, THIS_SERVICE), "shed"),
                Query(rate(semconv.RETRIED_REQUESTS, _METHOD, THIS_SERVICE), f"retried {{{{{_METHOD}}}}}"),
                links=_LINKS,
            ),
            graph(
                "Garbage collection, longest pauses",
                "99th percentile of the pauses. Good: below 50 ms.",
                "s",
                Query(quantile(0.99, semconv.GC_PAUSE, INSTANCE, THIS_SERVICE), _POD),
                limits=Limits(0.05, 0.25),
            ),
            graph(
                "Runs of the garbage collector per second",
                "Good: few of generation 2.",
                "ops",
                Query(
                    rate(semconv.GC_COLLECTIONS, label(semconv.GC_GENERATION), THIS_SERVICE),
                    f"generation {{{{{label(semconv.GC_GENERATION)}}}}}",
                ),
            ),
            graph(
                "Threads by pod",
                "Good: steady.",
                "none",
                Query(total(semconv.PROCESS_THREADS, INSTANCE, THIS_SERVICE), _POD),
            ),
            graph(
                "Open files by pod",
                "Files and connections. Good: steady. Steady growth is a leak.",
                "none",
                Query(total(semconv.PROCESS_FILES, INSTANCE, THIS_SERVICE), _POD),
            ),
        ],
    )


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
        _stores(),
        _runtime(),
        variables=[service_variable()],
        annotations=[_restarts()],
    )
