"""The journal's database in PostgreSQL: what several replicas share."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeVar

from chassis.postgres import Connection, Postgres, open_postgres
from checkout_service.journal import JournalUnavailable
from checkout_service.journal_sql import Statement
from checkout_service.rows import Row

T = TypeVar("T")


@asynccontextmanager
async def postgres_database(url: str) -> AsyncIterator["PostgresDatabase"]:
    """A database, open within the context."""
    async with open_postgres(url) as server:
        yield PostgresDatabase(server)


class PostgresDatabase:
    """See `journal_sql.Database`. Statements that meet a restart are repeated, so each must bear it."""

    now = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"
    skip_locked = "FOR UPDATE SKIP LOCKED"

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._placed = cache(_with_placeholders)

    async def write(self, *batch: Statement) -> list[list[Row]]:
        """Run statements in one transaction, in one exchange; returns the rows of each when they are on disk."""

        async def work(connection: Connection) -> list[list[Row]]:
            async with connection.pipeline(), connection.transaction():
                cursors = [await connection.execute(self._placed(sql), values) for sql, values in batch]
            return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

        return await self._run(work)

    async def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query."""

        async def work(connection: Connection) -> list[Row]:
            return await (await connection.execute(self._placed(sql), parameters)).fetchall()

        return await self._run(work)

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            return await self._server.run(work)
        except TimeoutError as error:
            raise JournalUnavailable("the journal does not answer") from error


def _with_placeholders(sql: str) -> str:
    return sql.replace("?", "%s")
