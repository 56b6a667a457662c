"""Is telemetry complete? What services drop, and what the collector receives, refuses, sends and fails to send."""

from grafana_foundation_sdk.builders import timeseries

from chassis.telemetry import semconv
from dashboards.frame import Section, new_dashboard, values
from dashboards.panels import Limits, Query, graph, number
from dashboards.promql import SERVICE, WINDOW, increase, label, legend, select

_SIGNALS = {"spans": "spans", "metric_points": "metrics", "log_records": "logs"}
_THIS = 'job="$collector"'
_QUEUE, _CAPACITY = f"otelcol_exporter_queue_size{{{_THIS}}}", f"otelcol_exporter_queue_capacity{{{_THIS}}}"


def _flow(title: str, description: str, counter: str, limits: Limits | None = None) -> timeseries.Panel:
    """Return a graph of a collector's counter, by signal and by the receiver or exporter that counts."""
    by = counter.partition("_")[0]
    queries = (
        Query(f"sum by ({by}) (rate(otelcol_{counter}_{suffix}_total{{{_THIS}}}{WINDOW}))", f"{signal} {legend(by)}")
        for suffix, signal in _SIGNALS.items()
    )
    return graph(title, description, "none", *queries, limits=limits)


def _lost(name: str, window: str) -> str:
    parts = [f"(sum(increase(otelcol_{name}_{suffix}_total{{{_THIS}}}[{window}])) or vector(0))" for suffix in _SIGNALS]
    return " + ".join(parts)


_LOSSES = Section(
    "Is anything lost?",
    number(
        "Dropped by services in an hour",
        "Spans, log records and metric exports that the collector did not take in time. Good: 0.",
        "none",
        f"sum({increase(semconv.TELEMETRY_DROPPED, SERVICE, '1h')}) or vector(0)",
        limits=Limits(1, 100),
        width=6,
    ),
    number(
        "Refused by the collector in an hour",
        "It refuses when its memory is short. Good: 0.",
        "none",
        _lost("receiver_refused", "1h"),
        limits=Limits(1, 100),
        width=6,
    ),
    number(
        "Not sent by the collector in an hour",
        "A store did not take them. Good: 0.",
        "none",
        _lost("exporter_send_failed", "1h"),
        limits=Limits(1, 100),
        width=6,
    ),
    number(
        "Queue of the fullest exporter",
        "Share of its capacity. Good: below 50 %. A full queue drops.",
        "percentunit",
        f"max({_QUEUE} / {_CAPACITY})",
        limits=Limits(0.5, 0.9),
        width=6,
    ),
)

_SIGNAL = label(semconv.SIGNAL)
_SERVICES = Section(
    "Services",
    graph(
        "Dropped by services in five minutes",
        "Good: 0. Dropped telemetry costs a service nothing, but its dashboards have gaps.",
        "none",
        Query(increase(semconv.TELEMETRY_DROPPED, f"{SERVICE}, {_SIGNAL}", "5m"), legend(SERVICE, _SIGNAL)),
        limits=Limits(1, 100),
        width=12,
    ),
    graph(
        "Series by service",
        "Time series in Prometheus. Good: steady. Growth with the number of orders is a label with unbounded values.",
        "none",
        Query(f'count by ({SERVICE}) ({{__name__!="",{select("").strip("{}")}}})', legend(SERVICE)),
        width=12,
    ),
)

_COLLECTOR = Section(
    "Collector",
    _flow("Received per second", "Good: moves with the requests.", "receiver_accepted"),
    _flow(
        "Refused per second",
        "The memory limiter refuses; services count what they drop then. Good: 0.",
        "receiver_refused",
        Limits(1, 100),
    ),
    _flow("Sent per second", "Good: as much as is received.", "exporter_sent"),
    _flow(
        "Failed to send per second",
        "Given up after retries. Good: 0. The exporter names the store that is down.",
        "exporter_send_failed",
        Limits(1, 100),
    ),
    graph(
        "Queues of exporters",
        "Batches that wait; the dashed line is the capacity. Good: near 0.",
        "none",
        Query(f"sum by (exporter, data_type) ({_QUEUE})", "{{exporter}} {{data_type}}"),
        Query(f"max({_CAPACITY})", "capacity", limit=True),
    ),
    _flow(
        "Not queued per second", "Dropped because a queue was full. Good: 0.", "exporter_enqueue_failed", Limits(1, 100)
    ),
    graph(
        "Memory of the collector",
        "Good: steady. It refuses data before it reaches its limit.",
        "bytes",
        Query(f"sum(otelcol_process_memory_rss_bytes{{{_THIS}}})", "memory"),
        width=12,
    ),
    graph(
        "CPU of the collector",
        "Cores. Good: steady.",
        "none",
        Query(f"sum(rate(otelcol_process_cpu_seconds_total{{{_THIS}}}{WINDOW}))", "CPU"),
        width=12,
    ),
)

# Jaeger has these metrics too: it is built from the collector's parts.
_JOBS = values("collector", "Collector", "label_values(otelcol_process_uptime_seconds_total, job)")
DASHBOARD = new_dashboard(
    "collector",
    "Shows gaps in what the other dashboards know.",
    _LOSSES,
    _SERVICES,
    _COLLECTOR,
    variables=[_JOBS.regex("/otel-collector/")],
)
