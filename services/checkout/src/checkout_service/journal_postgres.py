"""The journal's database in PostgreSQL: what several replicas share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool

from checkout_service.journal import JournalUnavailable
from checkout_service.journal_sql import Statement
from checkout_service.rows import Row

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Pool = AsyncConnectionPool[Connection]

ANSWER_WITHIN_SECONDS = 4
"""How long a statement is repeated while the server restarts."""

_RETRY_SECONDS = 0.1
_CONNECT_WITHIN_SECONDS = 1
_CONNECTIONS = 8
_CONNECTION_OPTIONS = {
    "autocommit": True,
    "prepare_threshold": 1,
    "connect_timeout": _CONNECT_WITHIN_SECONDS,
    # A server that vanished without a word: no answer within the time that a statement has.
    "tcp_user_timeout": ANSWER_WITHIN_SECONDS * 1000,
    "options": "-c synchronous_commit=on",
}
# Beside lost connections: after a failover the old address may answer, but read-only.
_PASSING = (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction)


@asynccontextmanager
async def postgres_database(url: str) -> AsyncIterator["PostgresDatabase"]:
    """A database, open within the context."""
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
        yield PostgresDatabase(pool)
    finally:
        await pool.close()


class PostgresDatabase:
    """See `journal_sql.Database`. Statements that meet a restart are repeated, so each must bear it."""

    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"
    skip_locked = "FOR UPDATE SKIP LOCKED"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._placed = cache(_with_placeholders)

    async def write(self, *batch: Statement) -> list[list[Row]]:
        """Run statements in one transaction, in one exchange; returns the rows of each when they are on disk."""

        async def work(connection: Connection) -> list[list[Row]]:
            async with connection.pipeline(), connection.transaction():
                cursors = [await connection.execute(self._placed(sql), values) for sql, values in batch]
            return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

        return await self._repeat(work)

    async def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query."""

        async def work(connection: Connection) -> list[Row]:
            return await (await connection.execute(self._placed(sql), parameters)).fetchall()

        return await self._repeat(work)

    async def _repeat(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_SECONDS):
                return await self._repeat_patiently(work)
        except TimeoutError as error:
            raise JournalUnavailable("the journal does not answer") from error

    async def _repeat_patiently(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        while True:
            try:
                async with self._pool.connection() as connection:
                    return await work(connection)
            except _PASSING:
                await asyncio.sleep(_RETRY_SECONDS)


def _with_placeholders(sql: str) -> str:
    return sql.replace("?", "%s")
