"""The journal's database in PostgreSQL: shared by several replicas."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

from asyncpg import UniqueViolationError
from typing_extensions import override

from chassis.sql.postgres import Postgres, open_postgres
from chassis.sql.statement_groups import StatementGroups
from chassis.telemetry.instruments import Telemetry
from checkout_service.journal.database import Database, Dialect, Parameters, Row, Statement, UniqueViolation
from checkout_service.ports import JournalUnavailable

DIALECT = Dialect(
    # As a subquery it is evaluated once for each statement: otherwise no index would be searched for it.
    now="(SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION))",
    for_update="FOR UPDATE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    items="json_array_elements(CAST(:items AS JSON)) AS items(value)",
    # An array, because of a subquery PostgreSQL expects a hundred rows, and reads the whole of a small table.
    listed="order_id = ANY(ARRAY(SELECT value->>'order_id' FROM {items}))",
    written="written",
    of_claim="TRUE",
    of_items="TRUE",
    locked="{listed} AND order_id IN (SELECT order_id FROM written)",
)


def is_dependent(text: str) -> bool:
    """Return whether a statement is about the orders that the one before it has written or locked."""
    return "{written}" in text or "{locked}" in text


def join(text: str, *dependents: str) -> str:
    """Return the SQL of a statement and those that depend on it, as one that returns the rows of the first.

    A transaction of several statements has a round trip for each, and two for BEGIN and COMMIT.
    """
    sql = DIALECT.render(text)
    if not dependents:
        return sql
    parts = ", ".join(f"dependent_{place} AS ({DIALECT.render(each)})" for place, each in enumerate(dependents))
    return f"WITH written AS ({sql}), {parts} SELECT * FROM written"  # noqa: S608 - no values


@asynccontextmanager
async def open_postgres_database(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["PostgresDatabase"]:
    """Open a database whose tables exist; close it on leaving the context."""
    async with open_postgres(url, telemetry) as server:
        opened = PostgresDatabase(server)
        try:
            yield opened
        finally:
            await opened.close()


class PostgresDatabase(Database):
    """A PostgreSQL database. Statements are repeated while the server restarts, so every one must be repeatable."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._groups = StatementGroups(server, "order_id")
        self._render = cache(join)
        self._reports = asyncio.Semaphore()  # operators use one connection of the pool at most

    @override
    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        joined: list[list[Statement]] = []
        for statement in batch:
            if is_dependent(statement[0]):
                joined[-1].append(statement)
            else:
                joined.append([statement])
        texts = [text for text, _ in batch]
        with _raising_errors_of_the_journal():
            rows = iter(await self._server.transaction(*map(self._join, joined), texts=texts))
            return [[] if is_dependent(text) else next(rows) for text in texts]

    @override
    async def write_order(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        texts = [text for text, _ in batch]
        with _raising_errors_of_the_journal():
            row = await self._groups.fetch(*self._join(batch), texts)
        return [[row] if row else [], *([] for _ in texts[1:])]

    async def close(self) -> None:
        """End what nobody awaits any more."""
        await self._groups.close()

    def _join(self, statements: Sequence[Statement]) -> Statement:
        values: dict[str, Any] = {}
        for _, parameters in reversed(statements):  # the first statement's claim is the one that its condition needs
            values |= parameters
        return self._render(*(text for text, _ in statements)), values

    @override
    async def read(self, text: str, parameters: Parameters) -> Sequence[Row]:
        with _raising_errors_of_the_journal():
            return await self._server.fetch(self._render(text), parameters)

    @override
    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        async with self._reports:
            return await self.read(text, parameters)


@contextmanager
def _raising_errors_of_the_journal() -> Iterator[None]:
    try:
        yield
    except UniqueViolationError as error:
        raise UniqueViolation from error
    except TimeoutError as error:
        raise JournalUnavailable("the journal does not answer") from error
