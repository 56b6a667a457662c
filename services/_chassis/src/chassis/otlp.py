"""Configures the telemetry of a process.

The settings are OpenTelemetry's own: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG,
OTEL_RESOURCE_ATTRIBUTES, OTEL_METRIC_EXPORT_INTERVAL, OTEL_BSP_*.
"""

import os
from collections.abc import Mapping

from chassis.telemetry import Telemetry


def configure(service_name: str, environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Export traces, metrics and logs over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise record nothing."""
    if not environment.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return Telemetry()
    from chassis.otlp_sdk import start_export  # noqa: PLC0415 - the SDK is a third of a service's start and memory

    return start_export(service_name)
