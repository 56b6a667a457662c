"""The spool's database as a SQLite file: the embedded default, for one process."""

import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from typing_extensions import override

from chassis.sql.sqlite import SqliteWriter
from chassis.telemetry.instruments import Telemetry
from email_service.messages import SpoolUnavailable
from email_service.spool.database import Database, Dialect, Row
from email_service.spool.statements import RELEASE_CLAIMS

DIALECT = Dialect(now="unix_time()", skip_locked="")


@asynccontextmanager
async def open_sqlite_database(path: Path, telemetry: Telemetry | None = None) -> AsyncIterator["SqliteDatabase"]:
    """Open a file whose tables exist, and release what an ended process had claimed; close it on leaving."""
    writer = SqliteWriter(path, telemetry, unix_time=time.time)
    try:
        opened = SqliteDatabase(writer)
        await opened.run(RELEASE_CLAIMS, {})
        yield opened
    finally:
        await writer.close()


class SqliteDatabase(Database):
    """A SQLite file. Concurrent statements share a flush to disk."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self._render = cache(DIALECT.render)

    @override
    async def run(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        return await self.run_each(text, [parameters])

    @override
    async def run_each(self, text: str, parameters: Sequence[Mapping[str, Any]]) -> list[Row]:
        def work(connection: sqlite3.Connection) -> list[Row]:
            cursor, rendered = connection.cursor(), self._render(text)
            cursor.row_factory = sqlite3.Row
            return [row for values in parameters for row in cursor.execute(rendered, values).fetchall()]

        try:
            return await self._writer.run(work, text)
        except sqlite3.DatabaseError as error:  # locked, full, damaged
            raise SpoolUnavailable from error
