"""A SQLite file that one thread writes: what callers hand over meanwhile shares the next transaction and its flush."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from chassis.group_commit import GroupCommit

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

ANSWER_WITHIN_SECONDS = 4
"""How long to wait for another process that writes."""


def connect(path: Path, **functions: Callable[[], Any]) -> sqlite3.Connection:
    """Open a file so that what is committed is on disk. Transactions begin and end by statements alone.

    Statements may call the functions by their names.
    """
    connection = sqlite3.connect(path, timeout=ANSWER_WITHIN_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for name, function in functions.items():
        connection.create_function(name, 0, function)
    return connection


class SqliteWriter:
    """Writes to a file. A full disk, a broken one and a file locked for too long are all sqlite3.OperationalError."""

    def __init__(self, path: Path, **functions: Callable[[], Any]) -> None:
        self._connection = connect(path, **functions)
        self._commits: GroupCommit[Work[Any], Any] = GroupCommit(self._commit)

    async def run(self, work: Work[T]) -> T:
        """Do the work in a transaction and return when it is on disk.

        What it raises, or work that shares its transaction, reaches every caller of that transaction: nothing of it
        is kept.
        """
        return cast("T", await self._commits.run(work))

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._commits.close()
        self._connection.close()

    def _commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            results = [work(self._connection) for work in batch]
            self._connection.execute("COMMIT")
        finally:
            # After some errors, a full disk among them, SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return results
