"""The ledger in a SQLite file: the embedded default."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from chassis.sqlite import SqliteWriter, Work
from payment_service.domain import Entry, LedgerUnavailable
from payment_service.store import READ_COLUMNS, to_entry, to_row

_FIND = f"SELECT {READ_COLUMNS} FROM charges WHERE charge_key = ?"  # noqa: S608 - a constant
_RECORD = f"""
    INSERT INTO charges ({READ_COLUMNS}, transaction_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""  # noqa: S608
_VOID = """
    UPDATE charges SET state = 'VOIDED', voided_at = CURRENT_TIMESTAMP WHERE charge_key = ? AND state = 'CHARGED'
"""

T = TypeVar("T")


@asynccontextmanager
async def sqlite_ledger(path: Path) -> AsyncIterator["SqliteLedger"]:
    """A ledger, open within the context."""
    writer = SqliteWriter(path)
    try:
        yield SqliteLedger(writer)
    finally:
        await writer.close()


class SqliteLedger:
    """See `domain.Ledger`. A full disk, a broken one and a file locked for too long are all LedgerUnavailable."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

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
            return await self._writer.run(work)
        except sqlite3.OperationalError as error:
            raise LedgerUnavailable("the ledger does not answer") from error


def _find(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = connection.execute(_FIND, (key,)).fetchone()
    return row and to_entry(row)
