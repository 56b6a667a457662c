"""Configures the telemetry of a process, by OpenTelemetry's own variables: see `chassis.telemetry.otlp_settings`."""

import os
from collections.abc import Mapping

from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.otlp_settings import load_otlp_settings
from chassis.telemetry.propagation import load_propagation


def configure(service_name: str, environment: Mapping[str, str] = os.environ) -> Telemetry:
    """Export traces, metrics and logs over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise record nothing.

    Exit with status 2 and one line per invalid variable.
    """
    settings = load_otlp_settings(environment)
    propagation = load_propagation(settings.otel_propagators)
    if not settings.otel_exporter_otlp_endpoint:
        return Telemetry(propagation=propagation)
    from chassis.telemetry.otlp_sdk import start_export  # noqa: PLC0415 - the SDK is a third of a service's start and memory

    return start_export(service_name, settings, propagation)
