"""Inside one service: its stores and its processes."""

from functools import partial

from chassis.telemetry import semconv
from dashboards.frame import Section
from dashboards.links import signals_of
from dashboards.panels import Limits, Query, graph
from dashboards.promql import INSTANCE, SERVICE, THIS_SERVICE, label, largest, legend, mean, quantile, rate, total

_METHOD, _ERROR = label(semconv.RPC_METHOD), label(semconv.ERROR_TYPE)
_SYSTEM, _OPERATION = label(semconv.DB_SYSTEM), label(semconv.DB_OPERATION)
_POOL, _STORE = label(semconv.POOL_NAME), label(semconv.FLUSH_STORE)
_REFUSAL, _PORT = label(semconv.REFUSAL_REASON), label(semconv.PORT_NAME)
_SHED = label(semconv.SHED_REASON)
_HTTP_REFUSAL = label(semconv.HTTP_REFUSAL_REASON)
_graph = partial(graph, links=signals_of("${service}"))
_POD = legend(INSTANCE)

_DB = semconv.DB_CLIENT_DURATION
STORES = Section(
    "Is its store slow?",
    _graph(
        "Duration of database operations, 99th percentile",
        "Good: a few milliseconds. One slow operation: a lock or a plan. All slow: the server or its disk.",
        "s",
        Query(quantile(0.99, _DB, f"{_SYSTEM}, {_OPERATION}", THIS_SERVICE), legend(_SYSTEM, _OPERATION)),
        limits=Limits(0.1, 1),
    ),
    _graph(
        "Failed database operations per second",
        "Good: 0. The error type tells a lost connection from a timeout.",
        "ops",
        Query(rate(_DB, f"{_SYSTEM}, {_ERROR}", THIS_SERVICE, f'{_ERROR}!=""'), legend(_SYSTEM, _ERROR)),
    ),
    _graph(
        "Connections in use",
        "Per pool, of all pods; the dashed line is the size of the pools. Good: below it.",
        "none",
        Query(
            total(semconv.POOL_CONNECTIONS, _POOL, THIS_SERVICE, f'{label(semconv.POOL_STATE)}="used"'), legend(_POOL)
        ),
        Query(total(semconv.POOL_MAX, _POOL, THIS_SERVICE), f"{legend(_POOL)} size", limit=True),
    ),
    _graph(
        "Operations that wait for a connection",
        "Good: 0. If all connections are in use, operations hold them for too long.",
        "none",
        Query(total(semconv.POOL_PENDING, _POOL, THIS_SERVICE), legend(_POOL)),
        limits=Limits(1, 10),
    ),
    _graph(
        "Wait for a connection, 99th percentile",
        "Good: below 1 ms.",
        "s",
        Query(quantile(0.99, semconv.POOL_WAIT, _POOL, THIS_SERVICE), legend(_POOL)),
        limits=Limits(0.01, 0.1),
    ),
    _graph(
        "Flush, 99th percentile",
        "Duration of a batch of writes with its flush to disk. Good: below 50 ms. More: a lock, or a slow disk.",
        "s",
        Query(quantile(0.99, semconv.FLUSH_DURATION, _STORE, THIS_SERVICE), legend(_STORE)),
        limits=Limits(0.05, 0.5),
    ),
    graph(
        "Writes per flush, mean",
        "Good: grows with the load. Near 1 at high load: writes do not share flushes.",
        "none",
        Query(mean(semconv.FLUSH_SIZE, _STORE, THIS_SERVICE), legend(_STORE)),
    ),
    graph(
        "Cache lookups per second",
        "Good: mostly hits. Stale values are served when their source does not respond.",
        "ops",
        Query(
            rate(semconv.CACHE_LOOKUPS, f"{label(semconv.CACHE_NAME)}, {label(semconv.CACHE_RESULT)}", THIS_SERVICE),
            legend(label(semconv.CACHE_NAME), label(semconv.CACHE_RESULT)),
        ),
    ),
    _graph(
        "Messages to the mail relay, 99th percentile",
        "Duration of a transmission; only e-mail has it. Good: below 1 s.",
        "s",
        Query(quantile(0.99, semconv.SMTP_CLIENT_DURATION, _ERROR, THIS_SERVICE), f"sent {legend(_ERROR)}"),
        limits=Limits(1, 5),
    ),
)

PROCESS = Section(
    "Is its process starved?",
    _graph(
        "Event-loop lag by pod, 99th percentile",
        "How late timers run. Good: below 50 ms. More means that the process lacks CPU, or that something blocks it.",
        "s",
        Query(quantile(0.99, semconv.LOOP_LAG, INSTANCE, THIS_SERVICE), _POD),
        limits=Limits(0.05, 0.25),
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
    _graph(
        "In flight by pod",
        "Requests being served on each port; above the dashed line it sheds. Good: far below it, and even.",
        "none",
        Query(total(semconv.ACTIVE_REQUESTS, f"{INSTANCE}, {_PORT}", THIS_SERVICE), f"{_POD} {legend(_PORT)}"),
        Query(largest(semconv.REQUEST_LIMIT, SERVICE, THIS_SERVICE), "limit", limit=True),
    ),
    _graph(
        "Requests shed, refused and retried per second",
        "Shed: too many were in flight. Denied: to a caller that is not listed. Refused: for their host, by a limit of "
        "the storefront, or by access control of the employee API, enforced or not. Retried: received again after a "
        "failed attempt. Good: 0.",
        "reqps",
        Query(rate(semconv.SHED_REQUESTS, _SHED, THIS_SERVICE), f"shed {legend(_SHED)}"),
        Query(rate(semconv.DENIED_REQUESTS, _METHOD, THIS_SERVICE), f"denied {legend(_METHOD)}"),
        Query(rate(semconv.HTTP_REFUSALS, _HTTP_REFUSAL, THIS_SERVICE), f"refused {legend(_HTTP_REFUSAL)}"),
        Query(rate(semconv.EMPLOYEE_API_REFUSALS, _REFUSAL, THIS_SERVICE), f"refused {legend(_REFUSAL)}"),
        Query(rate(semconv.RETRIED_REQUESTS, _METHOD, THIS_SERVICE), f"retried {legend(_METHOD)}"),
    ),
    graph(
        "Time left of certificates by pod",
        "Good: above the dashed line, a quarter of the lifetime. Below it, no new certificate was issued in time.",
        "s",
        Query(f"{largest(semconv.CERTIFICATE_EXPIRY, INSTANCE, THIS_SERVICE)} - time()", _POD),
        Query(f"0.25 * {largest(semconv.CERTIFICATE_LIFETIME, SERVICE, THIS_SERVICE)}", "renewed until", limit=True),
    ),
    graph(
        "Failed reloads of certificates by pod, per second",
        "The files that replaced a certificate are unusable, and the old ones still in use. Good: 0.",
        "ops",
        Query(rate(semconv.FAILED_RELOADS, INSTANCE, THIS_SERVICE), _POD),
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
            f"generation {legend(label(semconv.GC_GENERATION))}",
        ),
    ),
    graph(
        "Threads by pod", "Good: steady.", "none", Query(total(semconv.PROCESS_THREADS, INSTANCE, THIS_SERVICE), _POD)
    ),
    graph(
        "Open files by pod",
        "Files and connections. Good: steady. Steady growth is a leak.",
        "none",
        Query(total(semconv.PROCESS_FILES, INSTANCE, THIS_SERVICE), _POD),
    ),
)
