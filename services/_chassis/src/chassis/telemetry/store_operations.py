"""Records spans and durations for operations on SQL databases and Valkey.

Every operation is timed, but only sampled traces get spans. Spans and metrics never contain a statement's values: their
descriptions come from the statement's text, which has placeholders instead of values.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.propagation import is_sampled

# Shorter waits get no span: nearly every operation waits a few microseconds, and so many spans would clutter traces.
_MIN_WAIT_SECONDS = 0.001
_INNERMOST_PARENTHESES = re.compile(r"\([^()]*\)")
_KEYWORD = re.compile(r"[A-Za-z]+")
_STATEMENT = re.compile(
    r'\b(?:(INSERT)\s+INTO|(UPDATE)|(DELETE)\s+FROM|(SELECT)\b.*?\bFROM)\s+"?([a-z_]\w*)', re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Operation:
    """A description of an operation, without its values.

    Attributes:
        name: the kind of operation, such as INSERT; begins with BATCH if there are several statements.
        summary: the span's name, such as `INSERT orders`.
    """

    name: str
    summary: str
    batch_size: int = 1


@lru_cache(maxsize=1024)
def sql_operation(text: str, *more: str) -> Operation:
    """Describe statements that are sent together, each by its operation and first table."""
    if not more:
        return Operation(*_describe(text))
    parts = [_describe(statement) for statement in (text, *more)]
    names = {name for name, _ in parts}
    name = f"BATCH {names.pop()}" if len(names) == 1 else "BATCH"
    return Operation(name, "; ".join(summary for _, summary in parts), len(parts))


def _describe(text: str) -> tuple[str, str]:
    outer, found = text, 1
    while found:  # don't mistake a common table expression or subquery for the statement
        outer, found = _INNERMOST_PARENTHESES.subn("?", outer)
    match = _STATEMENT.search(outer) or _STATEMENT.search(text)
    if match is None:
        keyword = _KEYWORD.search(text)
        name = keyword[0].upper() if keyword else "UNKNOWN"
        return name, name
    name = next(keyword for keyword in match.groups()[:4] if keyword).upper()
    return name, f"{name} {match[5]}"


class StoreTelemetry:
    """Records spans and durations of one store's operations. `namespace` is the database name or file name."""

    def __init__(
        self, telemetry: Telemetry, system: str, namespace: str, address: str | None = None, port: int | None = None
    ) -> None:
        self.name = f"{system}/{namespace}"
        self.tracer = telemetry.tracer
        self.durations = telemetry.histogram(semconv.DB_CLIENT_DURATION)
        self.system = system
        self.span_attributes: dict[str, str | int] = {semconv.DB_SYSTEM: system, semconv.DB_NAMESPACE: namespace}
        server = {semconv.SERVER_ADDRESS: address, semconv.SERVER_PORT: port}
        self.span_attributes |= {name: value for name, value in server.items() if value}

    def measure(self, operation: Operation) -> "_Measurement":
        """Start measuring an operation. On exit, record its duration and, in a sampled trace, its span."""
        return _Measurement(self, operation)

    def start_span(self, operation: Operation) -> Span:
        attributes = {
            **self.span_attributes,
            semconv.DB_OPERATION: operation.name,
            semconv.DB_QUERY_SUMMARY: operation.summary,
        }
        if operation.batch_size > 1:
            attributes[semconv.DB_BATCH_SIZE] = operation.batch_size
        return self.tracer.start_span(operation.summary, None, SpanKind.CLIENT, attributes)


class _Measurement:
    """A context manager that measures one running operation."""

    __slots__ = ("_labels", "_span", "_started", "_store")

    def __init__(self, store: StoreTelemetry, operation: Operation) -> None:
        self._store = store
        self._labels: Attributes = ((semconv.DB_SYSTEM, store.system), (semconv.DB_OPERATION, operation.name))
        self._span = store.start_span(operation) if is_sampled() else trace.INVALID_SPAN
        self._started = time.perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        seconds = time.perf_counter() - self._started
        if error is not None:
            problem = _error_type(error)
            self._labels = (*self._labels, (semconv.ERROR_TYPE, problem))
            _set_error(self._span, problem, getattr(error, "sqlstate", None))
        self._span.end()
        self._store.durations.record(seconds, self._labels, self._span)


class PoolTelemetry:
    """Exports a connection pool's metrics, and records spans for waits.

    The export thread calls `count`, which returns the number of connections by state: idle or used.
    """

    def __init__(self, telemetry: Telemetry, name: str, maximum: int, count: Callable[[], Mapping[str, int]]) -> None:
        self._tracer = telemetry.tracer
        self._durations = telemetry.histogram(semconv.POOL_WAIT)
        self._labels = labels = ((semconv.POOL_NAME, name),)
        self.waiting = 0

        def connections() -> list[tuple[float, Attributes]]:
            return [(number, (*labels, (semconv.POOL_STATE, state))) for state, number in count().items()]

        telemetry.observe(semconv.POOL_CONNECTIONS, connections)
        telemetry.observe(semconv.POOL_MAX, lambda: [(maximum, labels)])
        telemetry.observe(semconv.POOL_PENDING, lambda: [(self.waiting, labels)])

    @contextmanager
    def measure_wait(self) -> Iterator[None]:
        """Record the time spent in this context as a wait for a connection."""
        started, problem = time.perf_counter(), None
        self.waiting += 1
        try:
            yield
        except BaseException as error:
            problem = error
            raise
        finally:
            self.waiting -= 1
            ended = time.perf_counter()
            self._durations.record(ended - started, self._labels)
            record_wait(self._tracer, "pool.wait", started, ended, problem)


def record_wait(tracer: Tracer, name: str, started: float, ended: float, error: BaseException | None = None) -> None:
    """If a wait took over a millisecond and the current trace is sampled, add a span for the wait.

    `started` and `ended` are time.perf_counter readings; `error` is the exception that ended a failed wait.
    """
    if ended - started <= _MIN_WAIT_SECONDS or not is_sampled():
        return
    origin = time.time_ns() - int(time.perf_counter() * 1e9)
    span = tracer.start_span(name, start_time=origin + int(started * 1e9))
    if error is not None:
        _set_error(span, _error_type(error))
    span.end(origin + int(ended * 1e9))


def _error_type(error: BaseException) -> str:
    """Return a SQLite error's name, such as SQLITE_BUSY, or any other error's class name."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _set_error(span: Span, problem: str, status: str | None = None) -> None:
    span.set_attribute(semconv.ERROR_TYPE, problem)
    if status:
        span.set_attribute(semconv.DB_STATUS, status)
    span.set_status(StatusCode.ERROR)
