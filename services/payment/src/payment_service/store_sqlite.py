"""The ledger in a SQLite file: the embedded default."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from chassis.group_commit import GroupCommit
from payment_service.domain import Entry, LedgerUnavailable
from payment_service.store import ANSWER_WITHIN_SECONDS, READ_COLUMNS, to_entry, to_row

_FIND = f"SELECT {READ_COLUMNS} FROM charges WHERE charge_key = ?"  # noqa: S608 - a constant
_RECORD = f"""
    INSERT INTO charges ({READ_COLUMNS}, transaction_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""  # noqa: S608
_VOID = """
    UPDATE charges SET state = 'VOIDED', voided_at = CURRENT_TIMESTAMP WHERE charge_key = ? AND state = 'CHARGED'
"""


T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


@asynccontextmanager
async def sqlite_ledger(path: Path) -> AsyncIterator["SqliteLedger"]:
    """A ledger, open within the context."""
    connection = sqlite3.connect(path, timeout=ANSWER_WITHIN_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    ledger = SqliteLedger(connection)
    try:
        yield ledger
    finally:
        await ledger.close()


class SqliteLedger:
    """See `domain.Ledger`. A full disk, a broken one and a file locked for too long are all LedgerUnavailable."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._commits = GroupCommit[Work[Any], Any](self._commit)

    async def close(self) -> None:
        """Finish what was begun and close the file."""
        await self._commits.close()
        self._connection.close()

    async def record(self, entry: Entry) -> Entry:
        """Store the entry unless its key has one; returns the one that the key has now."""

        def insert(connection: sqlite3.Connection) -> Entry | None:
            inserted = connection.execute(_RECORD, to_row(entry)).rowcount
            return entry if inserted else _find(connection, entry.key)

        found = await self._run(insert)
        if found is None:
            raise LedgerUnavailable("the ledger lost an entry")
        return found

    async def find(self, key: str) -> Entry | None:
        """Look an entry up."""
        return await self._run(lambda connection: _find(connection, key))

    async def void(self, key: str) -> Entry | None:
        """Turn a CHARGED entry into a VOIDED one, leave any other; returns what the key has now."""

        def update(connection: sqlite3.Connection) -> Entry | None:
            connection.execute(_VOID, (key,))
            return _find(connection, key)

        return await self._run(update)

    async def check(self) -> None:
        """Return if the ledger answers."""
        await self.find("")

    async def _run(self, work: Work[T]) -> T:
        try:
            return cast("T", await self._commits.run(work))
        except sqlite3.OperationalError as error:
            raise LedgerUnavailable("the ledger does not answer") from error

    def _commit(self, batch: Sequence[Work[Any]]) -> Sequence[Any]:
        """Do all the work in one transaction: if it fails, nothing of it is kept."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            results = [work(self._connection) for work in batch]
            self._connection.execute("COMMIT")
        finally:
            # After some errors, a full disk among them, SQLite has rolled back by itself.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return results


def _find(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = connection.execute(_FIND, (key,)).fetchone()
    return row and to_entry(row)
