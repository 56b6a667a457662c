"""A SQLite file with a single writer: concurrent work shares one transaction and one flush to disk."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from chassis.sql.group_commit import GroupCommit
from chassis.sql.write_ahead_log import use_write_ahead_log
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import StoreTelemetry, sql_operation

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

ANSWER_WITHIN_SECONDS = 4
"""How long to wait for the lock that another process holds."""

_CHECKPOINT_COMMITS = 100
# 80 MB: if checkpoints fall behind, commits make them from here on.
_LONGEST_LOG_PAGES = 20_000


def connect(path: Path, **functions: Callable[[], Any]) -> sqlite3.Connection:
    """Open a file in autocommit mode, such that a commit returns when the data is on disk.

    Args:
        path: the file.
        functions: made available to SQL statements under their names.
    """
    connection = sqlite3.connect(path, timeout=ANSWER_WITHIN_SECONDS, isolation_level=None, check_same_thread=False)
    use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    # KiB. The default of 2 MB fills up and stays, and orders are no faster with it: the kernel caches the file.
    connection.execute("PRAGMA cache_size = -512")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG_PAGES}")
    for name, function in functions.items():
        connection.create_function(name, 0, function)
    return connection


class SqliteWriter:
    """Writes to a file. A full disk, an I/O error and a lock timeout all raise sqlite3.OperationalError.

    Args:
        path: the file.
        telemetry: records operations and flushes; by default nothing.
        functions: see `connect`.
    """

    def __init__(self, path: Path, telemetry: Telemetry | None = None, **functions: Callable[[], Any]) -> None:
        telemetry = telemetry or Telemetry()
        self._connection = connect(path, **functions)
        self.store = StoreTelemetry(telemetry, "sqlite", path.name)
        self._waits = True
        self._checkpoints = _Checkpoints(path)
        self._commits: GroupCommit[Work[Any], Any] = GroupCommit(
            self._commit, self.store.name, telemetry, at_once=self._commit_at_once
        )

    async def run(self, work: Work[T], text: str, *more: str, brief: bool = False) -> T:
        """Run the work in a transaction and return its result once it is on disk.

        If any work in the same transaction fails, all of it rolls back and every caller gets that error.

        Args:
            work: what to run.
            text: the work's statement, or its main one, for the span.
            more: further statements.
            brief: the work reads and writes few rows, so that it may be done on the event loop.
        """
        with self.store.measure(sql_operation(text, *more)):
            return cast("T", await self._commits.run(work, brief=brief))

    async def close(self) -> None:
        """Finish pending work and close the file."""
        await self._commits.close()
        self._checkpoints.close()
        self._connection.close()

    def _commit_at_once(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        """Commit, or raise BlockingIOError if another process holds the lock."""
        try:
            self._begin(wait=False)
        except sqlite3.OperationalError as error:
            raise BlockingIOError from error
        return self._run_and_commit(batch)

    def _commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        self._begin(wait=True)
        return self._run_and_commit(batch)

    def _begin(self, *, wait: bool) -> None:
        if wait is not self._waits:
            self._connection.execute(f"PRAGMA busy_timeout = {ANSWER_WITHIN_SECONDS * 1000 if wait else 0}")
            self._waits = wait
        self._connection.execute("BEGIN IMMEDIATE")

    def _run_and_commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        try:
            results = [work(self._connection) for work in batch]
            self._connection.execute("COMMIT")
            self._checkpoints.count_commit()
        finally:
            # After some errors, such as a full disk, SQLite has already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return results


class _Checkpoints:
    """Moves the write-ahead log into the file after every hundredth commit, on a thread of its own.

    SQLite would do so within a commit, which then waits for writing a thousand pages and for further flushes.
    """

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        self._commits = 0
        self._due = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def count_commit(self) -> None:
        self._commits += 1
        if self._commits % _CHECKPOINT_COMMITS == 0:
            self._due.set()

    def close(self) -> None:
        """Finish the checkpoint that runs, and close the connection."""
        self._closing = True
        self._due.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._due.wait() and not self._closing:
            self._due.clear()
            with suppress(sqlite3.DatabaseError):  # commits report a full disk or a damaged file
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
