"""Connections to a PostgreSQL server that may restart at any time: work is retried until the server responds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

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
async def open_postgres(url: str) -> AsyncIterator["Postgres"]:
    """Open a pool of connections to the database at a libpq URL, whether or not the server responds yet."""
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
        yield Postgres(pool)
    finally:
        await pool.close()


class Postgres:
    """Runs work on the connections of a pool, in autocommit mode."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, within_seconds: float | None = None) -> T:
        """Run the work on a connection. Raise TimeoutError when it does not finish in time.

        Args:
            work: restarted from its beginning whenever the connection is lost, so it must be safe to repeat.
            within_seconds: time limit over all attempts; ANSWER_WITHIN_SECONDS by default.
        """
        async with asyncio.timeout(within_seconds or ANSWER_WITHIN_SECONDS):
            while True:
                try:
                    async with self._pool.connection() as connection:
                        return await work(connection)
                except _TRANSIENT_ERRORS:
                    await asyncio.sleep(_RETRY_SECONDS)
