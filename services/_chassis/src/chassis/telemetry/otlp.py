"""Configures a process's telemetry."""

from chassis.settings import load
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.settings import OtlpSettings


def configure(service_name: str) -> Telemetry:
    """Export traces, metrics and logs over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise, export nothing.

    If variables are invalid, print one line for each and exit with status 2.
    """
    settings = load(OtlpSettings)
    if not settings.otel_exporter_otlp_endpoint:
        return Telemetry(propagation=settings.otel_propagators)
    from chassis.telemetry.sdk import start_export  # noqa: PLC0415 - importing it takes a third of startup time and memory

    return start_export(service_name, settings)
