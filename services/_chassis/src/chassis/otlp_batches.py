"""Batch processors that do nothing while nothing is recorded: the SDK's wake an idle process at every interval."""

from collections.abc import Callable
from threading import Lock, Timer

from opentelemetry.sdk._logs import ReadWriteLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from typing_extensions import override

_INTERVAL_OF_THE_SDK = 24 * 3600 * 1000  # its own thread then only exports batches that are full before the delay


class SpanBatches(BatchSpanProcessor):
    """Exports spans OTEL_BSP_SCHEDULE_DELAY after the first one, or when a batch is full."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter, schedule_delay_millis=_INTERVAL_OF_THE_SDK)
        delay: int = self._default_schedule_delay_millis()  # type: ignore[no-untyped-call]
        self._flush = _DelayedFlush(self.force_flush, delay)

    @override
    def on_end(self, span: ReadableSpan) -> None:
        super().on_end(span)
        self._flush.schedule()


class LogBatches(BatchLogRecordProcessor):
    """Exports log records OTEL_BLRP_SCHEDULE_DELAY after the first one, or when a batch is full."""

    def __init__(self, exporter: LogRecordExporter) -> None:
        super().__init__(exporter, schedule_delay_millis=_INTERVAL_OF_THE_SDK)
        delay: int = self._default_schedule_delay_millis()  # type: ignore[no-untyped-call]
        self._flush = _DelayedFlush(self.force_flush, delay)

    @override
    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        super().on_emit(log_record)
        self._flush.schedule()


class _DelayedFlush:
    """Flushes, in a thread, a delay after the first of any number of calls of `schedule`.

    There is one flush at a time: while a collector hangs, waiting threads would pile up.
    """

    def __init__(self, flush: Callable[[], bool], delay_milliseconds: int) -> None:
        self._flush = flush
        self._delay_seconds = delay_milliseconds / 1000
        self._lock = Lock()
        self._wanted = False
        self._scheduled = False

    def schedule(self) -> None:
        self._wanted = True
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        timer = Timer(self._delay_seconds, self._run)
        timer.daemon = True  # shutdown exports what is left
        timer.start()

    def _run(self) -> None:
        self._wanted = False  # before the flush, which may miss what is recorded meanwhile
        self._flush()
        with self._lock:
            self._scheduled = False
            again = self._wanted
        if again:
            self.schedule()
