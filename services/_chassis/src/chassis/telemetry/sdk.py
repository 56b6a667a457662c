"""Wires the OpenTelemetry SDK, which exports telemetry over OTLP. Imported only when export is enabled."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased

from chassis.telemetry import semconv
from chassis.telemetry.drops import CountedLogRecords, CountedSpans, DropCounter, FailureReasons
from chassis.telemetry.instruments import SCOPE, Telemetry
from chassis.telemetry.metrics import Counter, Histogram
from chassis.telemetry.otlp import OtlpSettings
from chassis.telemetry.process_metrics import observe_process
from chassis.telemetry.sdk_histograms import ExporterWithHistograms

# Its warning of a value that is cut to the limit would become a log record with a value that is cut, without end.
logging.getLogger("opentelemetry.attributes").setLevel(logging.ERROR)

# Kubernetes kills a pod 5 s after the time that a service takes to drain.
_SHUTDOWN_SECONDS = 3.0


def start_export(service_name: str, settings: OtlpSettings) -> Telemetry:
    """Start to export traces, metrics and logs to OTEL_EXPORTER_OTLP_ENDPOINT, until `Telemetry.shutdown` is called."""
    reasons = FailureReasons()
    reasons.install()
    resource = _resource(service_name)
    dropped = Counter(semconv.TELEMETRY_DROPPED)
    histograms: dict[str, Histogram] = {}
    spans, metrics, logs = open_exporters(settings.otel_exporter_otlp_protocol)

    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    drops = DropCounter("traces", dropped, reasons)
    tracers.add_span_processor(CountedSpans(spans, drops, **_span_limits(settings)))
    loggers = LoggerProvider(resource, shutdown_on_exit=False)
    drops = DropCounter("logs", dropped, reasons)
    loggers.add_log_record_processor(CountedLogRecords(logs, drops, **_log_limits(settings)))
    drops = DropCounter("metrics", dropped, reasons)
    reader = PeriodicExportingMetricReader(ExporterWithHistograms(metrics, resource, histograms, drops))
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    trace.set_tracer_provider(tracers)  # instrumentation libraries use the global provider

    def shutdown() -> None:
        stop_observing()
        _shut_down([(tracers.shutdown, spans), (loggers.shutdown, logs), (meters.shutdown, metrics)])
        reasons.uninstall()

    telemetry = Telemetry(
        tracers.get_tracer(SCOPE),
        meters.get_meter(SCOPE),
        loggers.get_logger(SCOPE),
        histograms,
        {dropped.metric.name: dropped},
        propagation=settings.otel_propagators,
        follows_parents=isinstance(tracers.sampler, ParentBased),
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


def open_exporters(protocol: str) -> tuple[Any, Any, Any]:
    """Return OpenTelemetry's exporters of spans, metrics and logs for `grpc` or `http/protobuf`."""
    package = f"opentelemetry.exporter.otlp.proto.{protocol.partition('/')[0]}"
    names = (
        ("trace_exporter", "OTLPSpanExporter"),
        ("metric_exporter", "OTLPMetricExporter"),
        ("_log_exporter", "OTLPLogExporter"),
    )
    # Imported by name, so that the other protocol's modules take no memory.
    spans, metrics, logs = (getattr(import_module(f"{package}.{module}"), name)() for module, name in names)
    return spans, metrics, logs


def _span_limits(settings: OtlpSettings) -> dict[str, Any]:
    return {
        "max_queue_size": settings.otel_bsp_max_queue_size,
        "schedule_delay_millis": settings.otel_bsp_schedule_delay,
        # The SDK rejects batches that are larger than the queue.
        "max_export_batch_size": min(settings.otel_bsp_max_export_batch_size, settings.otel_bsp_max_queue_size),
    }


def _log_limits(settings: OtlpSettings) -> dict[str, Any]:
    return {
        "max_queue_size": settings.otel_blrp_max_queue_size,
        "schedule_delay_millis": settings.otel_blrp_schedule_delay,
        "max_export_batch_size": min(settings.otel_blrp_max_export_batch_size, settings.otel_blrp_max_queue_size),
    }


def _shut_down(signals: Sequence[tuple[Callable[[], object], Any]]) -> None:
    """Export what is left of all signals at the same time, within three seconds.

    The SDK would wait up to 30 s for one signal after the other if a collector hangs.

    Args:
        signals: for each the shutdown of its provider, and its exporter.
    """
    deadline = time.monotonic() + _SHUTDOWN_SECONDS
    threads = [threading.Thread(target=shut_down, daemon=True) for shut_down, _ in signals]
    for thread in threads:
        thread.start()
    for thread, (_, exporter) in zip(threads, signals, strict=True):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            exporter.shutdown()  # ends the call that hangs, and what still waits is refused
