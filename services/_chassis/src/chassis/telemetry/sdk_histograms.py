"""Exports the histograms of `chassis.telemetry.metrics` together with the SDK's own instruments."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from chassis.telemetry.drops import CountedExporter
from chassis.telemetry.instruments import SCOPE
from chassis.telemetry.metrics import Attributes, Histogram, Series


@dataclass(eq=False)
class ExporterWithHistograms:
    """Wraps a metric exporter to add histograms to every export."""

    _exporter: CountedExporter
    _resource: Resource
    _histograms: Mapping[str, Histogram]

    def export(self, metrics_data: sdk.MetricsData, **options: Any) -> None:
        histograms = [_to_metric(histogram) for histogram in list(self._histograms.values()) if histogram.series]
        added = sdk.ScopeMetrics(InstrumentationScope(f"{SCOPE}.histograms"), histograms, "")
        # Put the histograms into one ResourceMetrics with the SDK's metrics: the encoder keeps only one per resource.
        scopes = [scope for metrics in metrics_data.resource_metrics for scope in metrics.scope_metrics]
        combined = sdk.MetricsData([sdk.ResourceMetrics(self._resource, [*scopes, added], "")])
        self._exporter.export(combined, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)


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
