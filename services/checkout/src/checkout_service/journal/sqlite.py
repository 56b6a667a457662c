"""The journal's database as a SQLite file: the embedded default."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

from typing_extensions import override

from chassis.sql.sqlite import SqliteWriter, connect
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import sql_operation
from checkout_service.journal.database import Database, Dialect, Parameters, Row, Statement
from checkout_service.ports import JournalUnavailable

# SQLite's own clock is the same machine's, but its milliseconds are too coarse to order the events within one.
DIALECT = Dialect(
    # As a subquery it is called once for each statement, not for each row. On the thread each call waits for the loop.
    now="(SELECT unix_time())",
    for_update="",
    skip_locked="",
    items="json_each(:items)",
    listed="order_id IN (SELECT value->>'order_id' FROM {items})",
    written="orders",
    of_claim="{held} AND state = :state",
    of_items="{listed}",
    locked="{listed}",
)

Fetch: TypeAlias = Callable[[sqlite3.Connection, str, Parameters], list[Row]]


@asynccontextmanager
async def open_sqlite_database(path: Path, telemetry: Telemetry | None = None) -> AsyncIterator["SqliteDatabase"]:
    """Open a file whose tables exist; close it on leaving the context."""
    opened = SqliteDatabase(path, telemetry)
    try:
        yield opened
    finally:
        await opened.close()


class SqliteDatabase(Database):
    """A SQLite file. Concurrent writes share a flush. A thread runs the queries of operators.

    Other queries run on the event loop: an index answers them in less time than a hand-over to a thread takes, and no
    writer locks them out.
    """

    def __init__(self, path: Path, telemetry: Telemetry | None = None) -> None:
        self._render = cache(DIALECT.render)
        self._writer = SqliteWriter(path, telemetry, unix_time=time.time)
        self._reader = _open_reader(path)
        self._reporter = _Reporter(path, self._fetch)

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        return await self._write(batch, brief=False)

    @override
    async def write_order(self, *batch: Statement) -> list[list[Row]]:
        return await self._write(batch, brief=True)

    async def _write(self, batch: Sequence[Statement], *, brief: bool) -> list[list[Row]]:
        def work(connection: sqlite3.Connection) -> list[list[Row]]:
            return [self._fetch(connection, text, parameters) for text, parameters in batch]

        try:
            return await self._writer.run(work, *(text for text, _ in batch), brief=brief)
        except sqlite3.DatabaseError as error:  # locked, full, damaged
            raise JournalUnavailable("the journal cannot be written") from error

    @override
    async def read(self, text: str, parameters: Parameters) -> list[Row]:
        try:
            with self._writer.store.measure(sql_operation(text)):
                return self._fetch(self._reader, text, parameters)
        except sqlite3.DatabaseError as error:
            raise JournalUnavailable("the journal cannot be read") from error

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        with self._writer.store.measure(sql_operation(text)):
            return await self._reporter.run(text, parameters)

    async def close(self) -> None:
        """Finish pending writes and close the file."""
        await self._writer.close()
        self._reader.close()
        self._reporter.close()

    def _fetch(self, connection: sqlite3.Connection, text: str, parameters: Parameters) -> list[Row]:
        cursor = connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(self._render(text), parameters).fetchall()


def _open_reader(path: Path) -> sqlite3.Connection:
    connection = connect(path, unix_time=time.time)
    connection.execute("PRAGMA query_only = ON")
    return connection


class _Reporter:
    """A connection that only reads, on a thread of its own."""

    def __init__(self, path: Path, fetch: Fetch) -> None:
        self._connection = _open_reader(path)
        self._fetch = fetch
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal-report")

    async def run(self, text: str, parameters: Parameters) -> list[Row]:
        """Run a query. Raises JournalUnavailable."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._fetch, self._connection, text, parameters)
        except sqlite3.DatabaseError as error:
            raise JournalUnavailable("the journal cannot be read") from error

    def close(self) -> None:
        """Finish the query that runs, and close the connection."""
        self._thread.shutdown()
        self._connection.close()
