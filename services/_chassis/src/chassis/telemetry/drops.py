"""Counts telemetry that doesn't reach the collector."""

import logging
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import grpc
import structlog
from opentelemetry.sdk._logs import ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from typing_extensions import override

from chassis.telemetry import semconv
from chassis.telemetry.metrics import Counter

log = structlog.get_logger()

_LOG_INTERVAL_SECONDS = 60.0
_PHRASES = {status.phrase: f"HTTP {status.value}" for status in HTTPStatus}


class FailureReasons(logging.Filter):
    """Suppresses the exporters' log records, because they may quote the collector's response."""

    last = "unknown"
    """The status of the last failed export, such as `UNAVAILABLE` or `HTTP 503`, or its exception type."""
    _LOGGERS = (
        "opentelemetry.exporter.otlp.proto.grpc.exporter",
        "opentelemetry.exporter.otlp.proto.http._log_exporter",
        "opentelemetry.exporter.otlp.proto.http.metric_exporter",
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        "opentelemetry.util.re",  # quotes malformed headers
    )

    def install(self) -> None:
        for name in self._LOGGERS:
            logging.getLogger(name).filters.insert(0, self)  # before OpenTelemetry's filter, which drops repetitions

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


class DropCounter:
    """Counts the items lost for one signal (traces, logs or metrics), and logs the count at most once a minute."""

    def __init__(self, signal: str, dropped: Counter, reasons: FailureReasons) -> None:
        self._signal = signal
        self._attributes = ((semconv.SIGNAL, signal),)
        self._dropped = dropped
        self._reasons = reasons
        self._lock = threading.Lock()
        self._logged, self._logged_at = 0.0, -_LOG_INTERVAL_SECONDS
        self.add(0)  # export 0 from the start, or alerts would miss the first increase

    def add(self, items: int) -> None:
        with self._lock:
            self._dropped.add(items, self._attributes)

    def log(self) -> None:
        """Log how many items were lost since the last log line, unless that line is less than a minute old."""
        now, total = time.monotonic(), self._dropped.values[self._attributes]
        if total > self._logged and now - self._logged_at >= _LOG_INTERVAL_SECONDS:
            items = int(total - self._logged)
            self._logged, self._logged_at = total, now
            log.warning("telemetry dropped", signal=self._signal, items=items, reason=self._reasons.last)


class _CountedExporter:
    """Wraps a span or log record exporter, and counts the items that it doesn't deliver.

    This class also limits the batch processor's queue, because the SDK's own limit drops the oldest item silently.
    """

    def __init__(self, exporter: Any, drops: DropCounter, queue: int) -> None:
        self._exporter = exporter
        self._drops = drops
        self._room = threading.Semaphore(queue)

    def admit(self) -> bool:
        """Return whether another item may be queued. If not, count it as lost."""
        has_room = self._room.acquire(blocking=False)
        if not has_room:
            self._drops.add(1)
        return has_room

    def export(self, batch: Sequence[Any]) -> None:
        self._room.release(len(batch))
        try:
            is_delivered = self._exporter.export(batch).name == "SUCCESS"
        except Exception as error:  # noqa: BLE001 - the SDK would log the message, which may quote a secret header
            log.error("telemetry could not be exported", error=type(error).__name__)  # noqa: TRY400
            is_delivered = False
        if not is_delivered:
            self._drops.add(len(batch))
        self._drops.log()

    def shutdown(self) -> None:
        self._exporter.shutdown()


class CountedSpans(BatchSpanProcessor):
    def __init__(self, exporter: SpanExporter, drops: DropCounter, queue: int, batch: int, delay: float) -> None:
        self._counted = _CountedExporter(exporter, drops, queue)
        # Use min(), because the SDK rejects a batch that is larger than the queue; the same goes for log records below.
        super().__init__(cast("SpanExporter", self._counted), queue, delay, min(batch, queue))

    @override
    def on_end(self, span: ReadableSpan) -> None:
        if self._counted.admit():
            super().on_end(span)


class CountedLogRecords(BatchLogRecordProcessor):
    def __init__(self, exporter: LogRecordExporter, drops: DropCounter, queue: int, batch: int, delay: float) -> None:
        self._counted = _CountedExporter(exporter, drops, queue)
        super().__init__(cast("LogRecordExporter", self._counted), delay, min(batch, queue), max_queue_size=queue)

    @override
    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        if self._counted.admit():
            super().on_emit(log_record)
