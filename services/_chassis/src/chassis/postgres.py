"""Connections to a PostgreSQL server that may restart at any moment: work is repeated until the server answers."""

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
"""How long work is repeated before the server counts as unavailable."""

_RETRY_SECONDS = 0.1
_CONNECT_WITHIN_SECONDS = 1
_CONNECTIONS = 8
_CONNECTION_OPTIONS = {
    "autocommit": True,
    "prepare_threshold": 1,
    "connect_timeout": _CONNECT_WITHIN_SECONDS,
    # A server that vanished without a word: no answer within the time that work has.
    "tcp_user_timeout": ANSWER_WITHIN_SECONDS * 1000,
    "options": "-c synchronous_commit=on",
}
# Beside lost connections: after a failover the old address may answer, but read-only.
_PASSING = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)


@asynccontextmanager
async def open_postgres(url: str) -> AsyncIterator["Postgres"]:
    """A server's database, by its libpq address; opens whether or not the server answers yet."""
    pool: Pool = AsyncConnectionPool(
        url,
        min_size=1,
        max_size=_CONNECTIONS,
        open=False,
        timeout=_CONNECT_WITHIN_SECONDS,
        # Who waits for a connection retries: the pool's own back-off would outlast a server's restart.
        reconnect_timeout=0,
        kwargs=_CONNECTION_OPTIONS,
    )
    await pool.open()
    try:
        yield Postgres(pool)
    finally:
        await pool.close()


class Postgres:
    """Does work on the connections of a pool. Each statement commits by itself unless the work says otherwise."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, within_seconds: float | None = None) -> T:
        """Do the work, from its beginning again whenever the server goes away: it must bear that. Raises TimeoutError.

        Args:
            work: gets a connection.
            within_seconds: ANSWER_WITHIN_SECONDS unless given.
        """
        async with asyncio.timeout(within_seconds or ANSWER_WITHIN_SECONDS):
            while True:
                try:
                    async with self._pool.connection() as connection:
                        return await work(connection)
                except _PASSING:
                    await asyncio.sleep(_RETRY_SECONDS)
