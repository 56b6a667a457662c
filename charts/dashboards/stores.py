"""Do the stores keep up? PostgreSQL, Valkey and SQLite as the services see them."""

from functools import partial

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard
from dashboards.links import OF_ROW, OF_SERIES
from dashboards.panels import Column, Limits, Query, graph, table
from dashboards.promql import INSTANCE, SERVICE, label, legend, mean, observed, quantile, rate, select, share, total

_SYSTEM, _OPERATION, _ERROR = (label(name) for name in (semconv.DB_SYSTEM, semconv.DB_OPERATION, semconv.ERROR_TYPE))
_POOL, _STORE = label(semconv.POOL_NAME), label(semconv.FLUSH_STORE)
_USED = f'{label(semconv.POOL_STATE)}="used"'
_graph = partial(graph, links=OF_SERIES)
_BY_SYSTEM = f"{SERVICE}, {_SYSTEM}"
_LEGEND = legend(SERVICE, _SYSTEM)

_DB = semconv.DB_CLIENT_DURATION
_FAILED = share(rate(_DB, _BY_SYSTEM, f'{_ERROR}!=""'), rate(_DB, _BY_SYSTEM))
_OPERATIONS = Section(
    "Operations",
    table(
        "Stores by service",
        "One row per service and store. Good: no colour. All services of one store slow: the store. One service: "
        "its statements or its locks.",
        {SERVICE: "Service", _SYSTEM: "Store"},
        Column("Operations/s", rate(_DB, _BY_SYSTEM), "ops"),
        Column("Failed", _FAILED, "percentunit", Limits(0.001, 0.01)),
        Column("Median", quantile(0.5, _DB, _BY_SYSTEM), "s", Limits(0.01, 0.1)),
        Column("99th percentile", quantile(0.99, _DB, _BY_SYSTEM), "s", Limits(0.1, 1)),
        links=OF_ROW,
    ),
    _graph("Operations per second", "Good: moves with the orders.", "ops", Query(rate(_DB, _BY_SYSTEM), _LEGEND)),
    _graph(
        "Failed operations",
        "Share of the operations. Good: 0.",
        "percentunit",
        Query(_FAILED, _LEGEND),
        limits=Limits(0.001, 0.01),
    ),
    _graph(
        "Duration of operations, 99th percentile",
        "Good: a few milliseconds.",
        "s",
        Query(quantile(0.99, _DB, _BY_SYSTEM), _LEGEND),
        limits=Limits(0.1, 1),
    ),
    _graph(
        "Slowest kinds of operation",
        "99th percentile of the ten slowest. Good: below 100 ms.",
        "s",
        Query(f"topk(10, {quantile(0.99, _DB, f'{_BY_SYSTEM}, {_OPERATION}')})", f"{_LEGEND} {legend(_OPERATION)}"),
        limits=Limits(0.1, 1),
        width=12,
    ),
    _graph(
        "Time spent in stores",
        "Seconds per second, by service. Good: as usual. What grows is what is loaded or locked.",
        "none",
        Query(observed(_DB, _BY_SYSTEM), _LEGEND),
        stacked=True,
        width=12,
    ),
)

_BY_POOL = f"{SERVICE}, {_POOL}"
_POOL_LEGEND = legend(SERVICE, _POOL)
_IN_USE = share(
    total(semconv.POOL_CONNECTIONS, f"{_BY_POOL}, {INSTANCE}", _USED),
    total(semconv.POOL_MAX, f"{_BY_POOL}, {INSTANCE}"),
)
_POOLS = Section(
    "Pools of connections",
    _graph(
        "Connections in use, share of the pool",
        "Of the busiest pod. Good: below 80 %.",
        "percentunit",
        Query(f"max by ({_BY_POOL}) ({_IN_USE})", _POOL_LEGEND),
        limits=Limits(0.8, 1),
    ),
    _graph(
        "Operations that wait for a connection",
        "Good: 0.",
        "none",
        Query(total(semconv.POOL_PENDING, _BY_POOL), _POOL_LEGEND),
        limits=Limits(1, 10),
    ),
    _graph(
        "Wait for a connection, 99th percentile",
        "Good: below 1 ms.",
        "s",
        Query(quantile(0.99, semconv.POOL_WAIT, _BY_POOL), _POOL_LEGEND),
        limits=Limits(0.01, 0.1),
    ),
)

_BY_STORE = f"{SERVICE}, {_STORE}"
_STORE_LEGEND = legend(SERVICE, _STORE)
_FULL = f"{select(semconv.STORE_VOLUME_USAGE.series[0])} / {select(semconv.STORE_VOLUME_LIMIT.series[0])}"
_DISKS = Section(
    "Flushes and SQLite files",
    _graph(
        "Flush, 99th percentile",
        "Duration of a batch of writes with its flush to disk. Good: below 50 ms. Slow for all: the disk. For "
        "one: a lock.",
        "s",
        Query(quantile(0.99, semconv.FLUSH_DURATION, _BY_STORE), _STORE_LEGEND),
        limits=Limits(0.05, 0.5),
    ),
    _graph(
        "Writes per flush, mean",
        "Good: grows with the load.",
        "none",
        Query(mean(semconv.FLUSH_SIZE, _BY_STORE), _STORE_LEGEND),
    ),
    _graph(
        "Flushes per second",
        "Good: far below what the disk can do.",
        "ops",
        Query(rate(semconv.FLUSH_DURATION, _BY_STORE), _STORE_LEGEND),
    ),
    _graph(
        "Volumes of SQLite files, used share",
        "Good: below 80 %. Full: every write fails, nothing is lost. With PostgreSQL there are none.",
        "percentunit",
        Query(f"max by ({SERVICE}) ({_FULL})", legend(SERVICE)),
        limits=Limits(0.8, 0.95),
        width=12,
    ),
    _graph(
        "Size of SQLite files",
        "With their write-ahead logs. Good: grows with the orders and shrinks by retention.",
        "bytes",
        Query(f"max by ({SERVICE}) ({select(semconv.STORE_USAGE.series[0])})", legend(SERVICE)),
        width=12,
    ),
    _graph(
        "Paused retention",
        "Good: 0. 1: nothing is deleted for a day, because the clock jumped or the service did not run for days.",
        "short",
        Query(f"max by ({SERVICE}) ({select(semconv.RETENTION_PAUSED.series[0])})", legend(SERVICE)),
        width=12,
    ),
)

DASHBOARD = new_dashboard(
    "stores", "Stores as the services see them, waiting and network included.", _OPERATIONS, _POOLS, _DISKS
)
