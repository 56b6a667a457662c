"""Counts telemetry that doesn't reach the collector."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import grpc
import structlog
from typing_extensions import override

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Counter
from chassis.tls.certificates import Certificates

log = structlog.get_logger()

_LOG_INTERVAL_SECONDS = 60.0
_PHRASES = {status.phrase: f"HTTP {status.value}" for status in HTTPStatus}
# The message that the SDK logs for each item lost to a full queue.
_QUEUE_FULL = "Queue full, dropping %s."


class SdkLogs(logging.Filter):
    """Reads the SDK's log records about lost telemetry. Suppresses them, because they may quote responses."""

    last_failure = "unknown"
    """The status of the last failed export, such as `UNAVAILABLE` or `HTTP 503`, or its exception type."""

    _LOGGERS = (
        "opentelemetry.exporter.otlp.proto.grpc.exporter",
        "opentelemetry.exporter.otlp.proto.http._log_exporter",
        "opentelemetry.exporter.otlp.proto.http.metric_exporter",
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "opentelemetry.sdk._shared_internal",
        "opentelemetry.util.re",  # its warnings quote malformed headers, which may contain secrets
    )

    def install(self, queues: "Mapping[str, CountedExporter]") -> None:
        """Start reading log records. `queues` maps the SDK's item names, such as `Span`, to exporters."""
        self._queues = queues
        for name in self._LOGGERS:
            logger = logging.getLogger(name)
            logger.setLevel(logging.WARNING)  # losses are counted from warnings, whatever LOG_LEVEL is
            logger.filters.insert(0, self)  # run before OpenTelemetry's filter, which drops duplicates

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        for value in record.args if isinstance(record.args, tuple) else ():
            if record.msg == _QUEUE_FULL:
                self._queues[str(value)].drop(1)
            elif isinstance(value, grpc.StatusCode):
                self.last_failure = value.name
            elif isinstance(value, int):
                self.last_failure = f"HTTP {value}"
            elif isinstance(value, Exception):
                self.last_failure = type(value).__name__
            elif value in _PHRASES:
                self.last_failure = _PHRASES[value]
        return False


class CountedExporter:
    """Wraps a signal's exporter, counts items that don't reach the collector, and logs the count once a minute at most.

    `prepare` changes each batch before its export. When the `certificates` change, recreates the exporter, because
    OpenTelemetry's exporters read them only once.
    """

    def __init__(
        self, signal: str, create: Callable[[], Any], dropped: Counter, logs: SdkLogs, certificates: Certificates | None
    ) -> None:
        self.prepare: Callable[[Any], Any] = lambda batch: batch
        self._signal = signal
        self._attributes = ((semconv.SIGNAL, signal),)
        self._create = create
        self._dropped = dropped
        self._sdk_logs = logs
        self._certificates = certificates
        self._identity = certificates and certificates.refresh()
        self._exporter = create()
        self._lock = threading.Lock()
        self._logged, self._logged_at = 0.0, -_LOG_INTERVAL_SECONDS
        self.drop(0)  # export 0 from the start, or alerts would miss the first increase

    def drop(self, items: int) -> None:
        """Count lost items. Thread-safe."""
        with self._lock:
            self._dropped.add(items, self._attributes)

    def export(self, batch: Any, **options: Any) -> None:
        try:
            identity = self._certificates and self._certificates.refresh()
            if identity is not self._identity:
                replaced, self._exporter, self._identity = self._exporter, self._create(), identity
                replaced.shutdown()  # safe, because exports of the same signal never overlap
            is_delivered = self._exporter.export(self.prepare(batch), **options).name == "SUCCESS"
        except Exception as error:  # noqa: BLE001 - the SDK would log the message, which may quote a secret header
            log.error("telemetry could not be exported", error=type(error).__name__)  # noqa: TRY400
            is_delivered = False
        if not is_delivered:  # a failed metrics export counts as one item
            self.drop(len(batch) if isinstance(batch, Sequence) else 1)
        now, total = time.monotonic(), self._dropped.values[self._attributes]
        if total > self._logged and now - self._logged_at >= _LOG_INTERVAL_SECONDS:
            items = int(total - self._logged)
            self._logged, self._logged_at = total, now
            log.warning("telemetry dropped", signal=self._signal, items=items, reason=self._sdk_logs.last_failure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exporter, name)
