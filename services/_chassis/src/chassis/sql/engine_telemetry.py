"""Spans, durations and pool metrics of a SQLAlchemy engine. Only what uses SQLAlchemy imports this module."""

import time
from pathlib import Path
from typing import Any

from sqlalchemy import PoolProxiedConnection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from typing_extensions import override

from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import PoolTelemetry, PoolUse, StoreTelemetry, sql_operation

_MEASUREMENT = "_measurement"


class MeasuredPool(AsyncAdaptedQueuePool):
    """A pool that records waits for its connections once `measure` was called."""

    _telemetry: PoolTelemetry | None = None
    _waiting = 0

    def measure(self, telemetry: Telemetry, name: str) -> None:
        """Record waits and use from now on."""
        self._telemetry = PoolTelemetry(telemetry, name, self._use)

    @override
    def connect(self) -> PoolProxiedConnection:
        started, problem = time.perf_counter(), None
        self._waiting += 1
        try:
            return super().connect()
        except BaseException as error:
            problem = error
            raise
        finally:
            self._waiting -= 1
            if self._telemetry is not None:
                self._telemetry.record_wait(started, problem)

    def _use(self) -> PoolUse:
        return PoolUse(self.checkedout(), self.checkedin(), self.size() + self._max_overflow, self._waiting)


def measure_engine(engine: AsyncEngine, telemetry: Telemetry) -> None:
    """Record every statement of an engine, and its pool if that is a MeasuredPool."""
    url = engine.url
    system, database = url.get_backend_name(), url.database or ""
    namespace = Path(database).name if system == "sqlite" else database
    hosts = url.host or url.query.get("host") or ""
    address = hosts if isinstance(hosts, str) else ",".join(hosts)
    store = StoreTelemetry(telemetry, system, namespace, address, url.port)
    if isinstance(engine.pool, MeasuredPool):
        engine.pool.measure(telemetry, store.name)

    def begin(_connection: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        measurement = store.measure(sql_operation(statement))
        setattr(context, _MEASUREMENT, measurement)
        measurement.__enter__()

    def finish(_connection: Any, _cursor: Any, _statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        getattr(context, _MEASUREMENT).__exit__(None, None, None)

    def fail(context: ExceptionContext) -> None:
        measurement = getattr(context.execution_context, _MEASUREMENT, None)
        if measurement is not None:
            measurement.__exit__(None, context.original_exception, None)

    event.listen(engine.sync_engine, "before_cursor_execute", begin)
    event.listen(engine.sync_engine, "after_cursor_execute", finish)
    event.listen(engine.sync_engine, "handle_error", fail)
