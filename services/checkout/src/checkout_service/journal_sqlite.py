"""The journal's database as a SQLite file: the embedded default."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chassis.sqlite import SqliteWriter, connect
from checkout_service.journal import JournalUnavailable
from checkout_service.journal_sql import Statement
from checkout_service.rows import Row


@asynccontextmanager
async def sqlite_database(path: Path) -> AsyncIterator["SqliteDatabase"]:
    """A database, open within the context."""
    opened = SqliteDatabase(path)
    try:
        yield opened
    finally:
        await opened.close()


class SqliteDatabase:
    """See `journal_sql.Database`. One thread writes, with one flush for all that gathered; another one reads."""

    # SQLite's own clock is this machine's too, but tells milliseconds: too few to order what happens in one.
    now = "unix_time()"
    skip_locked = ""

    def __init__(self, path: Path) -> None:
        self._writer = SqliteWriter(path, unix_time=time.time)
        self._reader = connect(path, unix_time=time.time)
        self._reader.execute("PRAGMA query_only = ON")
        self._reads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-read")

    async def write(self, *batch: Statement) -> list[list[Row]]:
        """Run statements in one transaction; returns the rows of each when they are on disk."""

        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            return [connection.execute(*statement).fetchall() for statement in batch]

        try:
            return await self._writer.run(work)
        except sqlite3.DatabaseError as error:  # locked, full, broken
            raise JournalUnavailable("the journal can't be written") from error

    async def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run a query."""
        query: Callable[[], list[Row]] = lambda: self._reader.execute(sql, parameters).fetchall()  # noqa: E731
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reads, query)
        except sqlite3.DatabaseError as error:
            raise JournalUnavailable("the journal can't be read") from error

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._writer.close()
        self._reads.shutdown()
        self._reader.close()
