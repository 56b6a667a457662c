"""The spool's database in PostgreSQL: shared by several replicas."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from typing_extensions import override

from chassis.sql.postgres import Postgres, open_postgres
from chassis.telemetry.instruments import Telemetry
from email_service.messages import SpoolUnavailable
from email_service.spool.database import Database, Dialect, Row

DIALECT = Dialect(
    now="CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    skip_locked="FOR UPDATE SKIP LOCKED",
)


@asynccontextmanager
async def open_postgres_database(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["PostgresDatabase"]:
    """Open a database whose tables exist; close it on leaving the context."""
    async with open_postgres(url, telemetry) as server:
        yield PostgresDatabase(server)


class PostgresDatabase(Database):
    """A PostgreSQL database. Statements are repeated while the server restarts."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._render = cache(DIALECT.render)

    @override
    async def run(self, text: str, parameters: Mapping[str, Any]) -> Sequence[Row]:
        return await self.run_each(text, [parameters])

    @override
    async def run_each(self, text: str, parameters: Sequence[Mapping[str, Any]]) -> Sequence[Row]:
        try:
            return await self._server.fetch_each(self._render(text), parameters)
        except TimeoutError as error:
            raise SpoolUnavailable from error
