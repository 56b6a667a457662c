"""Exports the histograms of `chassis.telemetry.metrics` together with the SDK's own instruments."""

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from chassis.telemetry.drops import DropCounter
from chassis.telemetry.instruments import SCOPE
from chassis.telemetry.metrics import Attributes, Histogram, Series


class ExporterWithHistograms:
    """Adds histograms to every export of another exporter, and counts the exports that fail."""

    def __init__(
        self, exporter: MetricExporter, resource: Resource, histograms: Mapping[str, Histogram], drops: DropCounter
    ) -> None:
        self._exporter = exporter
        self._resource = resource
        self._histograms = histograms
        self._drops = drops

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        histograms = [_to_metric(histogram) for histogram in list(self._histograms.values()) if histogram.series]
        added = ScopeMetrics(InstrumentationScope(f"{SCOPE}.histograms"), histograms, "")
        # The encoder drops all but one entry per resource, so the histograms become a scope beside the SDK's own.
        scopes = [scope for metrics in metrics_data.resource_metrics for scope in metrics.scope_metrics]
        combined = MetricsData([ResourceMetrics(self._resource, [*scopes, added], "")])
        result = self._exporter.export(combined, timeout_millis=timeout_millis, **kwargs)
        if result is not MetricExportResult.SUCCESS:
            self._drops.add(1)
        self._drops.log()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)


def _to_metric(histogram: Histogram) -> Metric:
    points = [_to_point(histogram, attributes, series) for attributes, series in list(histogram.series.items())]
    metric = histogram.metric
    data = SdkHistogram(points, AggregationTemporality.CUMULATIVE)
    return Metric(metric.name, metric.description, metric.unit, data)


def _to_point(histogram: Histogram, attributes: Attributes, series: Series) -> HistogramDataPoint:
    # An exemplar is exported once: the next export has later calls.
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
