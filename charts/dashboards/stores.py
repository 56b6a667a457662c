"""Do the stores keep up? PostgreSQL, Valkey and SQLite as the services see them."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard
from dashboards.links import signals_of, to_service
from dashboards.panels import Column, Limits, Query, graph, table
from dashboards.promql import INSTANCE, SERVICE, label, legend, mean, quantile, rate, select, share, total

_SYSTEM, _OPERATION, _ERROR = (label(name) for name in (semconv.DB_SYSTEM, semconv.DB_OPERATION, semconv.ERROR_TYPE))
_POOL, _STORE = label(semconv.POOL_NAME), label(semconv.FLUSH_STORE)
_USED = f'{label(semconv.POOL_STATE)}="used"'
_OF_SERIES = "${__field.labels.service_name}"
_LINKS = (to_service(_OF_SERIES), *signals_of(_OF_SERIES))
_BY_SYSTEM = f"{SERVICE}, {_SYSTEM}"
_LEGEND = legend(SERVICE, _SYSTEM)


def _operations() -> Section:
    db = semconv.DB_CLIENT_DURATION
    failed = share(rate(db, _BY_SYSTEM, f'{_ERROR}!=""'), rate(db, _BY_SYSTEM))
    return Section(
        "Operations",
        [
            table(
                "Stores by service",
                "One row per service and store. Good: no colour. All services of one store slow: the store. One "
                "service: its statements or its locks.",
                {SERVICE: "Service", _SYSTEM: "Store"},
                Column("Operations/s", rate(db, _BY_SYSTEM), "ops"),
                Column("Failed", failed, "percentunit", Limits(0.001, 0.01)),
                Column("Median", quantile(0.5, db, _BY_SYSTEM), "s", Limits(0.01, 0.1)),
                Column("99th percentile", quantile(0.99, db, _BY_SYSTEM), "s", Limits(0.1, 1)),
                links=[to_service("${__value.text}"), *signals_of("${__value.text}")],
            ),
            graph(
                "Operations per second",
                "Good: moves with the orders.",
                "ops",
                Query(rate(db, _BY_SYSTEM), _LEGEND),
                links=_LINKS,
            ),
            graph(
                "Failed operations",
                "Share of the operations. Good: 0.",
                "percentunit",
                Query(failed, _LEGEND),
                limits=Limits(0.001, 0.01),
                links=_LINKS,
            ),
            graph(
                "Duration of operations, 99th percentile",
                "Good: a few milliseconds.",
                "s",
                Query(quantile(0.99, db, _BY_SYSTEM), _LEGEND),
                limits=Limits(0.1, 1),
                links=_LINKS,
            ),
            graph(
                "Slowest kinds of operation",
                "99th percentile of the ten slowest. Good: below 100 ms.",
                "s",
                Query(
                    f"topk(10, {quantile(0.99, db, f'{_BY_SYSTEM}, {_OPERATION}')})", f"{_LEGEND} {legend(_OPERATION)}"
                ),
                limits=Limits(0.1, 1),
                links=_LINKS,
                width=12,
            ),
            graph(
                "Time spent in stores",
                "Seconds per second, by service. Good: as usual. What grows is what is loaded or locked.",
                "none",
                Query(f"sum by ({_BY_SYSTEM}) (rate({select(db.series[2])}[$__rate_interval]))", _LEGEND),
                links=_LINKS,
                stacked=True,
                width=12,
            ),
        ],
    )


def _pools() -> Section:
    pool = f"{SERVICE}, {_POOL}"
    name = legend(SERVICE, _POOL)
    used = share(
        total(semconv.POOL_CONNECTIONS, f"{pool}, {INSTANCE}", _USED), total(semconv.POOL_MAX, f"{pool}, {INSTANCE}")
    )
    return Section(
        "Pools of connections",
        [
            graph(
                "Connections in use, share of the pool",
                "Of the busiest pod. Good: below 80 %.",
                "percentunit",
                Query(f"max by ({pool}) ({used})", name),
                limits=Limits(0.8, 1),
                links=_LINKS,
            ),
            graph(
                "Operations that wait for a connection",
                "Good: 0.",
                "none",
                Query(total(semconv.POOL_PENDING, pool), name),
                limits=Limits(1, 10),
                links=_LINKS,
            ),
            graph(
                "Wait for a connection, 99th percentile",
                "Good: below 1 ms.",
                "s",
                Query(quantile(0.99, semconv.POOL_WAIT, pool), name),
                limits=Limits(0.01, 0.1),
                links=_LINKS,
            ),
        ],
    )


def _disks() -> Section:
    store = f"{SERVICE}, {_STORE}"
    name = legend(SERVICE, _STORE)
    full = f"{select(semconv.STORE_VOLUME_USAGE.series[0])} / {select(semconv.STORE_VOLUME_LIMIT.series[0])}"
    return Section(
        "Flushes and SQLite files",
        [
            graph(
                "Flush, 99th percentile",
                "Duration of a batch of writes with its flush to disk. Good: below 50 ms. Slow for all: the disk. For "
                "one: a lock.",
                "s",
                Query(quantile(0.99, semconv.FLUSH_DURATION, store), name),
                limits=Limits(0.05, 0.5),
                links=_LINKS,
            ),
            graph(
                "Writes per flush, mean",
                "Good: grows with the load.",
                "none",
                Query(mean(semconv.FLUSH_SIZE, store), name),
                links=_LINKS,
            ),
            graph(
                "Flushes per second",
                "Good: far below what the disk can do.",
                "ops",
                Query(rate(semconv.FLUSH_DURATION, store), name),
                links=_LINKS,
            ),
            graph(
                "Volumes of SQLite files, used share",
                "Good: below 80 %. Full: every write fails, nothing is lost. With PostgreSQL there are none.",
                "percentunit",
                Query(f"max by ({SERVICE}) ({full})", legend(SERVICE)),
                limits=Limits(0.8, 0.95),
                links=_LINKS,
                width=12,
            ),
            graph(
                "Size of SQLite files",
                "With their write-ahead logs. Good: grows with the orders and shrinks by retention.",
                "bytes",
                Query(f"max by ({SERVICE}) ({select(semconv.STORE_USAGE.series[0])})", legend(SERVICE)),
                links=_LINKS,
                width=12,
            ),
        ],
    )


def build() -> Dashboard:
    """Return the dashboard."""
    description = "Stores as the services see them, waiting and network included."
    return new_dashboard("stores", description, _operations(), _pools(), _disks())
