"""Runs statements on SQLite files. Concurrent writes share one transaction and one flush to disk."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog

from chassis.sql.database import Database, Parameters, Row, Statement, StatementRejected
from chassis.sql.group_commit import GroupCommit
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import Operation, StoreTelemetry, sql_operation

log = structlog.get_logger()

ANSWER_WITHIN_SECONDS = 4  # how long to wait for a lock that another process holds
_RETRY_SECONDS = 0.01
_CHECKPOINT_COMMITS = 100
_LONGEST_LOG_PAGES = 20_000  # 80 MB; if the WAL is longer, each commit checkpoints it
# Primary error codes that show that the file is unusable. Other errors affect only the statement that raised them.
AWAY = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_ROW_LOCK = re.compile(r"FOR UPDATE( SKIP LOCKED)?")


class SqliteDatabase(Database, AbstractAsyncContextManager[Database]):
    """A SQLite file. Reads run on the event loop: reading through an index is faster than switching threads."""

    def __init__(self, path: Path, telemetry: Telemetry, unavailable: Callable[[], Exception]) -> None:
        self._unavailable = unavailable
        self._store = StoreTelemetry(telemetry, "sqlite", path.name)
        self._writer = connect(path)
        self._reader, self._reporter = connect(path, query_only=True), connect(path, query_only=True)
        self._reporting = ThreadPoolExecutor(max_workers=1, thread_name_prefix="report")
        self._commits_done = 0
        self._commits = GroupCommit(self._commit, self._store.name, telemetry)

    async def __aexit__(self, *_: object) -> None:
        await self._commits.close()
        self._reporting.shutdown()
        for connection in (self._reader, self._reporter, self._writer):
            connection.close()

    async def write(self, *batch: Statement) -> list[list[Row]]:
        operation = sql_operation(*{text: None for text, _ in batch})
        try:
            with self._store.measure(operation):
                return await self._commits.run(batch)
        except sqlite3.Error as error:
            raise self._unavailable() from _cause(error, operation)

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        operation = sql_operation(text)
        try:
            with self._store.measure(operation):
                return fetch(self._reader, text, parameters)
        except sqlite3.Error as error:
            raise self._unavailable() from _cause(error, operation)

    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        loop, operation = asyncio.get_running_loop(), sql_operation(text)
        try:
            with self._store.measure(operation):
                return await loop.run_in_executor(self._reporting, fetch, self._reporter, text, parameters)
        except sqlite3.Error as error:
            raise self._unavailable() from _cause(error, operation)

    def _commit(self, batch: Sequence[Sequence[Statement]], wait_seconds: float) -> list[list[list[Row]]]:
        connection = self._writer
        try:
            _execute_unlocked(connection, "BEGIN IMMEDIATE", min(wait_seconds, ANSWER_WITHIN_SECONDS))
        except sqlite3.OperationalError as error:
            if wait_seconds or not _is_locked(error):
                raise
            raise BlockingIOError from error
        try:
            results = [[fetch(connection, text, parameters) for text, parameters in statements] for statements in batch]
            connection.execute("COMMIT")
        finally:
            # After some errors, such as a full disk, SQLite has already rolled back.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        self._commits_done += 1
        if self._commits_done % _CHECKPOINT_COMMITS == 0:
            self._reporting.submit(self._checkpoint)
        return results

    def _checkpoint(self) -> None:
        """Copy the WAL into the database file. By default, SQLite does this during commits, which would delay them."""
        with suppress(sqlite3.DatabaseError):  # if the disk is full or the file damaged, commits will report it
            self._reporter.execute("PRAGMA wal_checkpoint(PASSIVE)")


def connect(path: Path, *, query_only: bool = False) -> sqlite3.Connection:
    """Open a file in autocommit mode. A commit returns only once the data is on disk."""
    # Commits on the event loop must not wait for a lock. Reads wait only while another process recovers the WAL.
    timeout = ANSWER_WITHIN_SECONDS if query_only else 0
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    # Cache only 512 KiB: the default of 2 MB doesn't make orders faster, because the kernel also caches the file.
    connection.execute("PRAGMA cache_size = -512")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG_PAGES}")
    connection.execute(f"PRAGMA query_only = {query_only:d}")
    # Replace invalid UTF-8: otherwise, one damaged value would make all rows of a query fail.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    add_functions(connection)
    return connection


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, in which readers and the writer don't wait for each other."""
    # Retry here, because SQLite ignores its timeout if several processes run this statement at the same time.
    _execute_unlocked(connection, "PRAGMA journal_mode = WAL", ANSWER_WITHIN_SECONDS)


def _execute_unlocked(connection: sqlite3.Connection, text: str, within_seconds: float) -> None:
    """Run a statement, waiting while another process holds the lock. Raise OperationalError after the timeout."""
    deadline = time.monotonic() + within_seconds
    while True:
        try:
            connection.execute(text)
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return primary_code(error) == sqlite3.SQLITE_BUSY


def _cause(error: sqlite3.Error, operation: Operation) -> Exception:
    """Return the error if the file is unusable; otherwise, log the error and return StatementRejected."""
    if primary_code(error) in AWAY:
        return error
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    log.error("statement rejected", operation=operation.summary, error=name)
    return StatementRejected(str(error))


def primary_code(error: sqlite3.Error) -> int:
    """Return the error's primary code, or SQLITE_ERROR for an error from Python itself, which has no code."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def add_functions(connection: sqlite3.Connection) -> None:
    """Add PostgreSQL's time functions. Times are seconds since 1970, or strings in the format of CURRENT_TIMESTAMP."""
    # SQLite's own clock has a resolution of milliseconds, which is too coarse to order events.
    connection.create_function("clock_timestamp", 0, time.time)
    connection.create_function("date_part", 2, _date_part, deterministic=True)
    connection.create_function("to_timestamp", 1, _to_timestamp, deterministic=True)


def _date_part(_epoch: str, moment: float | str) -> float | None:
    if isinstance(moment, str):
        with suppress(ValueError):
            return datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
        return None
    return moment


def _to_timestamp(seconds: float) -> str:
    # Drop fractions of seconds, because CURRENT_TIMESTAMP has none.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(" ", "seconds")


def fetch(connection: sqlite3.Connection, text: str, parameters: Parameters) -> list[Row]:
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    rows: list[Any] = cursor.execute(without_row_locks(text), parameters).fetchall()
    return rows


@cache
def without_row_locks(text: str) -> str:
    return _ROW_LOCK.sub("", text)
