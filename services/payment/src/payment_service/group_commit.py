"""A SQLite file written by one thread: one commit for all the work that gathers while the last one reaches the disk.

A commit costs a flush of the disk, a statement next to nothing: under load many share a flush.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class GroupCommit:
    """Runs work in transactions, in the order it was given.

    Args:
        path: the file, which must exist.
        busy_timeout_seconds: how long to wait for another process that writes.
    """

    def __init__(self, path: Path, *, busy_timeout_seconds: float) -> None:
        self._connection = sqlite3.connect(
            path, timeout=busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        self._committing = asyncio.Lock()
        self._gathered: list[Work[Any]] = []
        self._next: asyncio.Task[Sequence[Any]] | None = None

    async def run(self, work: Work[T]) -> T:
        """Do the work within a transaction and return its result when that is on disk.

        Raises sqlite3.Error if the transaction failed: then nothing of it is kept, of others' work neither.
        A cancelled caller's work is done all the same.
        """
        index = len(self._gathered)
        self._gathered.append(work)
        if self._next is None:
            self._next = asyncio.create_task(self._commit_gathered(), name="group commit")
        results = await asyncio.shield(self._next)
        return cast("T", results[index])

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        if self._next is not None:
            await asyncio.wait([self._next])
        async with self._committing:
            self._thread.shutdown()
            self._connection.close()

    async def _commit_gathered(self) -> Sequence[Any]:
        async with self._committing:
            work, self._gathered, self._next = self._gathered, [], None
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, work)

    def _commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            results = [work(self._connection) for work in batch]
            self._connection.execute("COMMIT")
        finally:
            # A disk that is full has rolled back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return results
