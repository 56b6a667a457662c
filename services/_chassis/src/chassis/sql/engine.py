"""SQLAlchemy engines for the employee API, with tracing and metrics."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from typing_extensions import override

from chassis.sql.migrate import BUSY_TIMEOUT_SECONDS, STORED_REVISION, is_pending
from chassis.sql.postgres import store_telemetry
from chassis.sql.sqlalchemy_url import UNPREPARED, sqlalchemy_url
from chassis.sql.sqlite import use_write_ahead_log
from chassis.sql.url import libpq_url, sqlite_path
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import PoolTelemetry, StoreTelemetry, sql_operation

_CONNECT_SECONDS = "5"  # how long to wait for a new PostgreSQL connection, unless the URL sets `connect_timeout`
_CONNECTIONS = 5
_MORE_CONNECTIONS = 10  # extra connections, opened under load and closed after use
_MEASUREMENT = "_measurement"


def open_engine(url: str, telemetry: Telemetry | None = None) -> AsyncEngine:
    """Create an engine that connects on first use. Its errors never contain parameter values.

    A SQLite transaction takes the write lock when it begins: if it took the lock later, it could fail instead of
    waiting for the lock. To read without it, use `engine.execution_options(isolation_level="AUTOCOMMIT")`.
    """
    path, telemetry = sqlite_path(url), telemetry or Telemetry()
    options: dict[str, Any] = {
        "poolclass": MeasuredPool,
        "pool_size": _CONNECTIONS,
        "max_overflow": _MORE_CONNECTIONS,
        "hide_parameters": True,
    }
    if path is None:
        target = sqlalchemy_url(url, connect_timeout=_CONNECT_SECONDS)
        created = create_async_engine(target, pool_pre_ping=True, connect_args=UNPREPARED, **options)
        store = store_telemetry(libpq_url(url), telemetry)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_SECONDS}
        created = create_async_engine(f"sqlite+aiosqlite:///{path}", **options)
        event.listen(created.sync_engine, "connect", _set_up_sqlite)
        event.listen(created.sync_engine, "begin", _begin_immediate)
        store = StoreTelemetry(telemetry, "sqlite", path.name)
    _measure(created.sync_engine, store, telemetry)
    return created


async def is_current(engine: AsyncEngine, migrations: Path) -> bool:
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        stored = (await connection.exec_driver_sql(STORED_REVISION)).scalar_one_or_none()
    return not is_pending(stored, migrations)


class MeasuredPool(AsyncAdaptedQueuePool):
    """A connection pool. After a call to `measure`, it exports its usage and how long callers wait for a connection."""

    _telemetry: PoolTelemetry | None = None

    def measure(self, telemetry: Telemetry, name: str) -> None:
        self._telemetry = PoolTelemetry(telemetry, name, _CONNECTIONS + _MORE_CONNECTIONS, self._use)

    @override
    def connect(self) -> PoolProxiedConnection:
        with self._telemetry.measure_wait() if self._telemetry else nullcontext():
            return super().connect()

    def _use(self) -> dict[str, int]:
        return {"used": self.checkedout(), "idle": self.checkedin()}


def _measure(engine: Engine, store: StoreTelemetry, telemetry: Telemetry) -> None:
    if isinstance(engine.pool, MeasuredPool):
        engine.pool.measure(telemetry, store.name)

    def begin(_connection: Any, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        setattr(context, _MEASUREMENT, store.measure(sql_operation(statement)))

    def finish(_connection: Any, _cursor: Any, _statement: str, _parameters: Any, context: Any, _many: bool) -> None:
        getattr(context, _MEASUREMENT).__exit__(None, None, None)

    def fail(context: ExceptionContext) -> None:
        measurement, error = getattr(context.execution_context, _MEASUREMENT, None), context.original_exception
        if measurement is not None:
            measurement.__exit__(type(error), error, None)

    event.listen(engine, "before_cursor_execute", begin)
    event.listen(engine, "after_cursor_execute", finish)
    event.listen(engine, "handle_error", fail)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    use_write_ahead_log(connection)
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_immediate(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
