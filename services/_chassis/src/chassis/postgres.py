"""Connections to a PostgreSQL server that may restart at any time: work is retried until the server responds."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from chassis.store_operations import Operation, PoolTelemetry, PoolUse, StoreTelemetry, sql_operation
from chassis.telemetry import Telemetry

T = TypeVar("T")
Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"
Pool: TypeAlias = "AsyncConnectionPool[Connection]"

ANSWER_WITHIN_SECONDS = 4
"""How long work is retried before the server counts as unavailable."""

_RETRY_SECONDS = 0.1
_CONNECT_WITHIN_SECONDS = 1
_CONNECTIONS = 8
_CONNECTION_OPTIONS = {
    "autocommit": True,
    "prepare_threshold": 1,
    "connect_timeout": _CONNECT_WITHIN_SECONDS,
    # Detects a server that vanished without closing its connection, within the time limit of the work.
    "tcp_user_timeout": ANSWER_WITHIN_SECONDS * 1000,
    "options": "-c synchronous_commit=on",
}
# ReadOnlySqlTransaction: after a failover the old server may still accept connections, but no writes.
_TRANSIENT_ERRORS = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)


@asynccontextmanager
async def open_postgres(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["Postgres"]:
    """Open a pool of connections to the database at a libpq URL, whether or not the server responds yet."""
    telemetry = telemetry or Telemetry()
    pool: Pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=_CONNECTIONS,
        open=False,
        timeout=_CONNECT_WITHIN_SECONDS,
        # `Postgres.run` retries: the pool's own back-off would outlast a server's restart.
        reconnect_timeout=0,
        kwargs=_CONNECTION_OPTIONS,
    )
    await pool.open()
    try:
        yield Postgres(pool, _store_telemetry(url, telemetry), telemetry)
    finally:
        await pool.close()


class Postgres:
    """Runs work on the connections of a pool, in autocommit mode."""

    def __init__(self, pool: Pool, store: StoreTelemetry, telemetry: Telemetry) -> None:
        self._pool = pool
        self._store = store
        self._waits = PoolTelemetry(telemetry, store.name, self._use)

    async def run(
        self, work: Callable[[Connection], Awaitable[T]], text: str, *more: str, within_seconds: float | None = None
    ) -> T:
        """Run the work on a connection. Raise TimeoutError when it does not finish in time.

        Args:
            work: restarted from its beginning whenever the connection is lost, so it must be safe to repeat.
            text: the work's statement, for the span of each attempt.
            more: further statements of the same transaction.
            within_seconds: time limit over all attempts; ANSWER_WITHIN_SECONDS by default.
        """
        operation = sql_operation(text, *more)
        async with asyncio.timeout(within_seconds or ANSWER_WITHIN_SECONDS) as limit:
            while True:
                try:
                    return await self._attempt(work, operation, limit)
                except _TRANSIENT_ERRORS:
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _attempt(
        self, work: Callable[[Connection], Awaitable[T]], operation: Operation, limit: asyncio.Timeout
    ) -> T:
        started, connected = time.perf_counter(), False
        try:
            async with self._pool.connection() as connection:
                connected = True
                self._waits.record_wait(started)
                with self._store.measure(operation, limit):
                    return await work(connection)
        except BaseException as error:
            if not connected:
                self._waits.record_wait(started, error)
            raise

    def _use(self) -> PoolUse:
        statistics = self._pool.get_stats()
        size, idle = statistics["pool_size"], statistics["pool_available"]
        return PoolUse(size - idle, idle, statistics["pool_max"], statistics.get("requests_waiting", 0))


def _store_telemetry(url: str, telemetry: Telemetry) -> StoreTelemetry:
    """Describe the database of a libpq URL; of several servers by the names of all."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    port = parts.get("port", "")
    return StoreTelemetry(
        telemetry, "postgresql", parts.get("dbname", ""), parts.get("host"), int(port) if port.isdecimal() else None
    )
