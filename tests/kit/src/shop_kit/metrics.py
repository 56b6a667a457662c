"""Gauges and counters, read as an export would."""

import json
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from chassis.telemetry.instruments import Telemetry

Series = tuple[Any, ...]
"""The name of a metric, and its attributes with their values."""


def measured() -> tuple[Telemetry, Callable[[], dict[Series, float]]]:
    """Return telemetry and a function that reads its metrics, by name and attributes."""
    reader = InMemoryMetricReader()

    def read() -> dict[Series, float]:
        data = reader.get_metrics_data()
        exported = json.loads(data.to_json())["resource_metrics"] if data else []
        metrics = [metric for group in exported for scope in group["scope_metrics"] for metric in scope["metrics"]]
        return {
            (metric["name"], *point["attributes"].items()): point["value"]
            for metric in metrics
            for point in metric["data"]["data_points"]
        }

    return Telemetry(meter=MeterProvider([reader]).get_meter("test")), read
