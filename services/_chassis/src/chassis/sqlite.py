"""A SQLite file with a single writer: concurrent work shares one transaction and one flush to disk."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from chassis.group_commit import GroupCommit

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

ANSWER_WITHIN_SECONDS = 4
"""How long to wait for the lock that another process holds."""

_PRIMARY_CODE = 0xFF  # of an extended error code


def connect(path: Path, **functions: Callable[[], Any]) -> sqlite3.Connection:
    """Open a file in autocommit mode, such that a commit returns when the data is on disk.

    Args:
        path: the file.
        functions: made available to SQL statements under their names.
    """
    connection = sqlite3.connect(path, timeout=ANSWER_WITHIN_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for name, function in functions.items():
        connection.create_function(name, 0, function)
    return connection


def _wait_for_locks(connection: sqlite3.Connection, seconds: float) -> None:
    """Set how long statements wait for a lock that another process holds."""
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _is_locked(error: sqlite3.Error) -> bool:
    """Return whether a statement failed because of a lock that another process holds."""
    # Errors that Python raises itself have no code.
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_BUSY


class SqliteWriter:
    """Writes to a file. A full disk, an I/O error and a lock timeout all raise sqlite3.OperationalError."""

    def __init__(self, path: Path, **functions: Callable[[], Any]) -> None:
        self._connection = connect(path, **functions)
        _wait_for_locks(self._connection, 0)
        self._commits: GroupCommit[Work[Any], Any] = GroupCommit(self._commit, self._try_commit)

    async def run(self, work: Work[T]) -> T:
        """Run the work in a transaction and return its result once it is on disk.

        If any work in the same transaction fails, all of it rolls back and every caller gets that error.
        """
        return cast("T", await self._commits.run(work))

    async def close(self) -> None:
        """Finish pending work and close the file."""
        await self._commits.close()
        self._connection.close()

    def _commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        _wait_for_locks(self._connection, ANSWER_WITHIN_SECONDS)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        finally:
            _wait_for_locks(self._connection, 0)
        return self._run_and_commit(batch)

    def _try_commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any] | None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _is_locked(error):
                return None
            raise
        return self._run_and_commit(batch)

    def _run_and_commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        try:
            results = [work(self._connection) for work in batch]
            self._connection.execute("COMMIT")
        finally:
            # After some errors, such as a full disk, SQLite has already rolled back.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return results
