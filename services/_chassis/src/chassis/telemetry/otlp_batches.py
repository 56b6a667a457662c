"""Queues from which spans and log records are exported in batches.

OpenTelemetry's own wake an idle process at every interval, stop only when a collector that hangs has timed out, and do
not count what they drop.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from opentelemetry._logs import Logger, LogRecord
from opentelemetry.context import Context
from typing_extensions import override

from chassis.telemetry import semconv
from chassis.telemetry.metrics import Counter

log = structlog.get_logger()

_LOG_INTERVAL_SECONDS = 60.0

ItemT = TypeVar("ItemT")


class Losses:
    """Counts what the collector did not take of one signal, and logs it at most once a minute.

    Args:
        signal: `traces`, `logs` or `metrics`.
        dropped: counts the losses of all signals.
        last_failure: returns why the last export failed.
    """

    def __init__(self, signal: str, dropped: Counter, last_failure: Callable[[], str]) -> None:
        self._signal = signal
        self._attributes = ((semconv.SIGNAL, signal),)
        self._dropped = dropped
        self._last_failure = last_failure
        self._lock = threading.Lock()
        self._not_logged = 0
        self._logged_at = -_LOG_INTERVAL_SECONDS
        dropped.add(0, self._attributes)

    def add(self, items: int) -> None:
        """Count lost items."""
        with self._lock:
            self._dropped.add(items, self._attributes)
            self._not_logged += items

    def report(self) -> None:
        """Log the losses since the last report, unless that was less than a minute ago."""
        now = time.monotonic()
        with self._lock:
            if self._not_logged == 0 or now - self._logged_at < _LOG_INTERVAL_SECONDS:
                return
            items, self._not_logged, self._logged_at = self._not_logged, 0, now
        log.warning("telemetry dropped", signal=self._signal, items=items, reason=self._last_failure())


@dataclass(frozen=True)
class BatchLimits:
    """When items are exported: a delay after the first one, or when there are enough for a batch."""

    delay_seconds: float
    queue_size: int
    batch_size: int


class BatchQueue(Generic[ItemT]):
    """Exports items from a thread, which sleeps while there are none. Items beyond the queue's size are dropped.

    Args:
        name: of the thread.
        export: sends a batch; returns whether the collector took it. It blocks at most for the exporter's timeout.
        limits: of the queue.
        losses: counts what is dropped.
    """

    def __init__(
        self, name: str, export: Callable[[Sequence[ItemT]], bool], limits: BatchLimits, losses: Losses
    ) -> None:
        self._export = export
        self._limits = limits
        self._losses = losses
        self._items: deque[ItemT] = deque()
        self._arrived = threading.Event()
        self._due = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, item: ItemT) -> None:
        """Queue an item without blocking."""
        waiting = len(self._items)
        if waiting >= self._limits.queue_size:
            self._losses.add(1)
            return
        self._items.append(item)
        if not self._arrived.is_set():
            self._arrived.set()
        if waiting + 1 == self._limits.batch_size:
            self._due.set()

    def begin_stop(self) -> None:
        """Export what is queued, without delay, and end the thread."""
        self._stopping = True
        self._due.set()
        self._arrived.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait until all is exported, but no longer than the timeout."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._stopping:
            self._arrived.wait()
            self._due.wait(self._limits.delay_seconds)
            # Before the export, during which more may arrive.
            self._arrived.clear()
            self._due.clear()
            while self._items:
                self._export_batch()

    def _export_batch(self) -> None:
        batch = [self._items.popleft() for _ in range(min(len(self._items), self._limits.batch_size))]
        try:
            is_exported = self._export(batch)
        except Exception as error:  # noqa: BLE001 - the thread must survive; the text may quote a secret header
            log.error("telemetry could not be exported", error=type(error).__name__)  # noqa: TRY400
            is_exported = False
        if not is_exported:
            self._losses.add(len(batch))
        self._losses.report()


class QueueLogger(Logger):
    """Queues log records as they are. The SDK's logger would convert each where it is logged: see `otlp_sdk`."""

    def __init__(self, name: str, queue: BatchQueue[LogRecord]) -> None:
        super().__init__(name)
        self._queue = queue

    @override
    def emit(self, record: LogRecord | None = None, **fields: Any) -> None:
        record = record or LogRecord(**fields)
        record.context = Context()  # a queued record must not keep alive what the context of a call refers to
        self._queue.add(record)

    @override
    def enabled(self, **_fields: Any) -> bool:
        return True
