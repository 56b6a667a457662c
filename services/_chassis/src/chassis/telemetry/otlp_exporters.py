"""OpenTelemetry's exporters for both protocols of OTLP, and the reason of their last failure."""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from importlib import import_module
from typing import Any

import grpc
from opentelemetry.sdk._logs.export import LogRecordExporter
from opentelemetry.sdk.metrics.export import MetricExporter
from opentelemetry.sdk.trace.export import SpanExporter
from typing_extensions import override

from chassis.telemetry.otlp_encoder import encode

_PHRASES = {status.phrase: f"HTTP {status.value}" for status in HTTPStatus}


@dataclass(frozen=True)
class Exporters:
    """The exporters of a process."""

    spans: SpanExporter
    metrics: MetricExporter
    logs: LogRecordExporter


def open_exporters(protocol: str) -> Exporters:
    """Return exporters for `grpc` or `http/protobuf`. They read the endpoint, headers and so on themselves."""
    package = f"opentelemetry.exporter.otlp.proto.{protocol.partition('/')[0]}"

    def load(module: str, name: str) -> Any:
        # Only what is chosen takes memory.
        return getattr(import_module(f"{package}.{module}"), name)()

    # Neither exporter takes an encoder as an argument. One that does not find it there encodes the same spans slowly.
    traces: Any = import_module(f"{package}.trace_exporter")
    traces.encode_spans = encode
    return Exporters(
        spans=load("trace_exporter", "OTLPSpanExporter"),
        metrics=load("metric_exporter", "OTLPMetricExporter"),
        logs=load("_log_exporter", "OTLPLogExporter"),
    )


class FailureReasons(logging.Filter):
    """Replaces the exporters' own log records, of which every attempt makes one, and which may quote the collector.

    Attributes:
        last: status of the last failure, such as `UNAVAILABLE` or `HTTP 503`; or the type of its exception.
    """

    _LOGGERS = (
        "opentelemetry.exporter.otlp.proto.grpc.exporter",
        "opentelemetry.exporter.otlp.proto.http._log_exporter",
        "opentelemetry.exporter.otlp.proto.http.metric_exporter",
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "opentelemetry.util.re",  # quotes headers that it does not understand
    )

    def __init__(self) -> None:
        super().__init__()
        self.last = "unknown"

    def install(self) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).filters.insert(0, self)  # before OpenTelemetry's own, which hides repetitions

    def uninstall(self) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).removeFilter(self)

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        for value in record.args if isinstance(record.args, tuple) else ():
            if isinstance(value, grpc.StatusCode):
                self.last = value.name
            elif isinstance(value, int):
                self.last = f"HTTP {value}"
            elif isinstance(value, Exception):
                self.last = type(value).__name__
            elif value in _PHRASES:
                self.last = _PHRASES[value]
        return False
