"""Telemetry that the OpenTelemetry SDK exports over OTLP, imported only when export is enabled."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast
from uuid import uuid4

from opentelemetry import trace
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LogRecordLimits, ReadableLogRecord, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics import Exemplar, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from typing_extensions import override

from chassis.telemetry import semconv
from chassis.telemetry.instruments import SCOPE, Telemetry
from chassis.telemetry.metrics import Attributes, Counter, Histogram, Series
from chassis.telemetry.otlp_batches import BatchLimits, BatchQueue, Losses, QueueLogger
from chassis.telemetry.otlp_exporters import FailureReasons, open_exporters
from chassis.telemetry.otlp_settings import OtlpSettings
from chassis.telemetry.otlp_spans import Span
from chassis.telemetry.otlp_tracer import TracerProvider
from chassis.telemetry.process_metrics import observe_process
from chassis.telemetry.propagation import Propagation

_LOG_SCOPE = InstrumentationScope(SCOPE)

# Kubernetes kills a pod 5 s after the time that a service takes to drain.
_SHUTDOWN_SECONDS = 3.0


def start_export(service_name: str, settings: OtlpSettings, propagation: Propagation) -> Telemetry:
    """Start to export traces, metrics and logs to OTEL_EXPORTER_OTLP_ENDPOINT, until `Telemetry.shutdown` is called."""
    reasons = FailureReasons()
    reasons.install()
    exporters = open_exporters(settings.otel_exporter_otlp_protocol)
    dropped = Counter(semconv.TELEMETRY_DROPPED)
    traces, metrics, logs = (Losses(signal, dropped, lambda: reasons.last) for signal in ("traces", "metrics", "logs"))
    spans = BatchQueue("spans", partial(_export_spans, exporters.spans), _span_limits(settings), traces)
    resource = _resource(service_name)
    export_logs = partial(_export_logs, exporters.logs, resource, LogRecordLimits())
    records = BatchQueue("logs", export_logs, _log_limits(settings), logs)
    histograms: dict[str, Histogram] = {}
    tracers = TracerProvider(resource, spans.add)
    reader = PeriodicExportingMetricReader(ExporterWithHistograms(exporters.metrics, resource, histograms, metrics))
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)  # instrumentation libraries use the global provider

    def shutdown() -> None:
        """Export what is left at the same time, within three seconds: a collector may hang."""
        stop_observing()
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        for queue in (spans, records):
            queue.begin_stop()
        meters.shutdown(_SHUTDOWN_SECONDS * 1000)
        for queue in (spans, records):
            queue.join(max(0.0, deadline - time.monotonic()))
        exporters.spans.shutdown()
        exporters.logs.shutdown()  # type: ignore[no-untyped-call]
        reasons.uninstall()

    telemetry = Telemetry(
        tracers.get_tracer(SCOPE),
        meters.get_meter(SCOPE),
        QueueLogger(SCOPE, records),
        histograms,
        {dropped.metric.name: dropped},
        propagation=propagation,
        follows_parents=tracers.follows_parents,
        is_exported=True,
        shutdown=shutdown,
    )
    telemetry.observe(semconv.TELEMETRY_DROPPED, dropped.points)
    stop_observing = observe_process(telemetry)
    return telemetry


def _resource(service_name: str) -> Resource:
    """Return the resource of this process: OTEL_RESOURCE_ATTRIBUTES overrides all but the name."""
    defaults = {"service.namespace": "shop", "service.instance.id": str(uuid4())}
    with suppress(PackageNotFoundError):  # images have the sources without metadata; the chart names their version
        defaults["service.version"] = version("shop-chassis")  # all packages of the project have the same
    named = Resource({"service.name": service_name})
    return Resource.create(defaults).merge(OTELResourceDetector().detect()).merge(named)


def _span_limits(settings: OtlpSettings) -> BatchLimits:
    return BatchLimits(
        settings.otel_bsp_schedule_delay / 1000,
        settings.otel_bsp_max_queue_size,
        settings.otel_bsp_max_export_batch_size,
    )


def _log_limits(settings: OtlpSettings) -> BatchLimits:
    return BatchLimits(
        settings.otel_blrp_schedule_delay / 1000,
        settings.otel_blrp_max_queue_size,
        settings.otel_blrp_max_export_batch_size,
    )


def _export_spans(exporter: SpanExporter, spans: Sequence[Span]) -> bool:
    # It passes them to `otlp_encoder.encode`.
    return exporter.export(cast("Sequence[ReadableSpan]", spans)) is SpanExportResult.SUCCESS


def _export_logs(
    exporter: LogRecordExporter, resource: Resource, limits: LogRecordLimits, records: Sequence[LogRecord]
) -> bool:
    readable = []
    for record in records:
        ReadWriteLogRecord(record, resource, limits=limits)  # cuts the record's attributes to the limits
        readable.append(ReadableLogRecord(record, resource, _LOG_SCOPE, limits))
    return exporter.export(readable) is LogRecordExportResult.SUCCESS


class ExporterWithHistograms(MetricExporter):
    """Adds histograms to every export of another exporter, and counts the exports that fail."""

    def __init__(
        self, exporter: MetricExporter, resource: Resource, histograms: Mapping[str, Histogram], losses: Losses
    ) -> None:
        super().__init__()
        self._losses = losses
        self._exporter = exporter
        self._resource = resource
        self._histograms = histograms

    @override
    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        histograms = [_to_metric(each) for each in list(self._histograms.values()) if each.series]
        added = ScopeMetrics(InstrumentationScope(f"{SCOPE}.histograms"), histograms, "")
        # The encoder drops all but one entry per resource, so the histograms become a scope beside the SDK's own.
        scopes = [scope for metrics in metrics_data.resource_metrics for scope in metrics.scope_metrics]
        combined = MetricsData([ResourceMetrics(self._resource, [*scopes, added], "")])
        result = self._exporter.export(combined, timeout_millis=timeout_millis, **kwargs)
        if result is not MetricExportResult.SUCCESS:
            self._losses.add(1)
        self._losses.report()
        return result

    @override
    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    @override
    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._exporter.shutdown(timeout_millis, **kwargs)


def _to_metric(histogram: Histogram) -> Metric:
    points = [_to_point(histogram, attributes, series) for attributes, series in list(histogram.series.items())]
    metric = histogram.metric
    data = SdkHistogram(points, AggregationTemporality.CUMULATIVE)
    return Metric(metric.name, metric.description, metric.unit, data)


def _to_point(histogram: Histogram, attributes: Attributes, series: Series) -> HistogramDataPoint:
    exemplars, series.exemplars = series.exemplars, {}
    counts = list(series.counts)
    return HistogramDataPoint(
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
            Exemplar({}, call.value, call.time_unix_nano, call.span.span_id, call.span.trace_id)
            for call in exemplars.values()
        ],
    )
