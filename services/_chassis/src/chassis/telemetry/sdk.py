"""Sets up the OpenTelemetry SDK to export over OTLP. This module is only imported if export is enabled."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Exemplar, MeterProvider
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from chassis.telemetry import semconv
from chassis.telemetry.drops import CountedExporter, SdkLogs
from chassis.telemetry.instruments import SCOPE, Attributes, Counter, Histogram, Series, Telemetry
from chassis.telemetry.process_metrics import observe_certificates, observe_process
from chassis.telemetry.settings import OtlpSettings

# This logger's warning about a truncated value would be exported, truncated and warned about in an endless loop.
logging.getLogger("opentelemetry.attributes").setLevel(logging.ERROR)

_EXPORTERS = {
    "traces": ("trace_exporter", "OTLPSpanExporter"),
    "metrics": ("metric_exporter", "OTLPMetricExporter"),
    "logs": ("_log_exporter", "OTLPLogExporter"),
}
# Must be less than 5 s, because Kubernetes kills a pod 5 s after its longest possible drain.
_SHUTDOWN_SECONDS = 3.0


def start_export(service_name: str, settings: OtlpSettings) -> Telemetry:
    """Export traces, metrics and logs to OTEL_EXPORTER_OTLP_ENDPOINT until `Telemetry.shutdown` is called."""
    # Strip white space around the values, because the SDK reads these variables itself and doesn't strip it.
    os.environ.update({name: text.strip() for name, text in os.environ.items() if name.startswith("OTEL_")})
    # Resource.create adds an instance id and OTEL_RESOURCE_ATTRIBUTES, which can't override the service name.
    resource = Resource({"service.namespace": "shop"}).merge(Resource.create({"service.name": service_name}))
    dropped, sdk_logs = Counter(semconv.TELEMETRY_DROPPED), SdkLogs()
    exporters: list[Any] = [
        CountedExporter(signal, create, dropped, sdk_logs, settings.tls_folder)
        for signal, create in zip(_EXPORTERS, load_exporters(settings.otel_exporter_otlp_protocol), strict=True)
    ]
    spans_to, metrics_to, logs_to = exporters
    sdk_logs.install({"Span": spans_to, "Log": logs_to})
    histograms: dict[str, Histogram] = {}
    # The SDK reads the sampler and the span limits from the environment.
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    # Use min(), here and below for logs, because the SDK rejects a batch size that exceeds the queue size.
    queue, batch = settings.otel_bsp_max_queue_size, settings.otel_bsp_max_export_batch_size
    tracers.add_span_processor(BatchSpanProcessor(spans_to, queue, settings.otel_bsp_schedule_delay, min(batch, queue)))
    loggers = LoggerProvider(resource, shutdown_on_exit=False)
    queue, batch = settings.otel_blrp_max_queue_size, settings.otel_blrp_max_export_batch_size
    delay = settings.otel_blrp_schedule_delay
    loggers.add_log_record_processor(BatchLogRecordProcessor(logs_to, delay, min(batch, queue), max_queue_size=queue))
    metrics_to.prepare = partial(_add_histograms, resource, histograms)
    reader = sdk.PeriodicExportingMetricReader(metrics_to)
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    telemetry = Telemetry(
        tracers.get_tracer(SCOPE),
        meters.get_meter(SCOPE),
        loggers.get_logger(SCOPE),
        histograms,
        {dropped.metric.name: dropped},
        propagation=settings.otel_propagators,
        follows_parents=isinstance(tracers.sampler, ParentBased),
        is_exported=True,
        shutdown=lambda: _shut_down(
            {tracers.shutdown: spans_to, loggers.shutdown: logs_to, meters.shutdown: metrics_to}
        ),
    )
    telemetry.observe(semconv.TELEMETRY_DROPPED, dropped.points)
    observe_process(telemetry)
    if settings.tls_folder is not None:
        observe_certificates(telemetry, settings.tls_folder)
    return telemetry


def load_exporters(protocol: str) -> list[Callable[[], Any]]:
    """Return OpenTelemetry's exporter classes for traces, metrics and logs over `grpc` or `http/protobuf`.

    The exporters read their settings from the environment.
    """
    # Import only the chosen protocol's modules, because the other protocol's would waste memory.
    package = f"opentelemetry.exporter.otlp.proto.{protocol.partition('/')[0]}"
    return [getattr(import_module(f"{package}.{module}"), name) for module, name in _EXPORTERS.values()]


def _shut_down(exporters: Mapping[Callable[[], object], Any]) -> None:
    """Export the remaining telemetry of all signals concurrently, within three seconds.

    If the collector hangs, the SDK by itself waits up to 30 s for each signal in turn. `exporters` maps each provider's
    shutdown function to its exporter.
    """
    deadline = time.monotonic() + _SHUTDOWN_SECONDS
    threads = {threading.Thread(target=shut_down, daemon=True): exporter for shut_down, exporter in exporters.items()}
    for thread in threads:
        thread.start()
    for thread, exporter in threads.items():
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            exporter.shutdown()  # abort the hanging export and prevent further exports


def _add_histograms(resource: Resource, histograms: Mapping[str, Histogram], data: sdk.MetricsData) -> sdk.MetricsData:
    added = [_to_metric(histogram) for histogram in list(histograms.values()) if histogram.series]
    # Put the histograms into one ResourceMetrics with the SDK's metrics: the encoder keeps only one per resource.
    scopes = [scope for metrics in data.resource_metrics for scope in metrics.scope_metrics]
    scopes.append(sdk.ScopeMetrics(InstrumentationScope(f"{SCOPE}.histograms"), added, ""))
    return sdk.MetricsData([sdk.ResourceMetrics(resource, scopes, "")])


def _to_metric(histogram: Histogram) -> sdk.Metric:
    points = [_to_point(histogram, attributes, series) for attributes, series in list(histogram.series.items())]
    metric = histogram.metric
    data = sdk.Histogram(points, sdk.AggregationTemporality.CUMULATIVE)
    return sdk.Metric(metric.name, metric.description, metric.unit, data)


def _to_point(histogram: Histogram, attributes: Attributes, series: Series) -> sdk.HistogramDataPoint:
    # Export each exemplar only once.
    exemplars, series.exemplars = series.exemplars, {}
    counts = list(series.counts)
    return sdk.HistogramDataPoint(
        attributes=dict(attributes),
        start_time_unix_nano=histogram.started_unix_nano,
        time_unix_nano=time.time_ns(),
        count=sum(counts),
        sum=series.total,
        bucket_counts=counts,
        explicit_bounds=histogram.metric.bounds,
        min=series.minimum,
        max=series.maximum,
        exemplars=[
            Exemplar({}, value, time_unix_nano, span.span_id, span.trace_id)
            for value, time_unix_nano, span in exemplars.values()
        ],
    )
