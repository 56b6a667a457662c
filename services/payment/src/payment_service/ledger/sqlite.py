"""The ledger in a SQLite file: the embedded default."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from chassis.sql.sqlite import SqliteWriter, Work
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import Position
from payment_service.domain import CapturedCharge, Entry, Ledger, LedgerUnavailable, Recorded
from payment_service.ledger.rows import COLUMNS, captured_from_row, entry_from_row, entry_to_row

_FIND = f"SELECT {COLUMNS} FROM charges WHERE charge_key = :charge_key"  # noqa: S608 - a constant
_RECORD = f"""
    INSERT INTO charges ({COLUMNS}, transaction_id) VALUES (
        :charge_key, :state, :currency_code, :units, :nanos, :card_hmac, :hmac_key_id, :brand, :reason,
        :request_fingerprint, :transaction_id
    ) ON CONFLICT DO NOTHING
"""  # noqa: S608
_VOID = """
    UPDATE charges SET state = 'VOIDED', voided_at = CURRENT_TIMESTAMP
    WHERE charge_key = :charge_key AND state = 'CHARGED'
"""
_LIST_CAPTURED = """
    SELECT charge_key, currency_code, units, nanos, strftime('%s', recorded_at) AS recorded_seconds FROM charges
    WHERE state = 'CHARGED' AND (recorded_at, charge_key) > (datetime(:at, 'unixepoch'), :key)
    ORDER BY recorded_at, charge_key LIMIT :limit
"""

T = TypeVar("T")


@asynccontextmanager
async def open_sqlite_ledger(path: Path, telemetry: Telemetry | None = None) -> AsyncIterator["SqliteLedger"]:
    """Open the ledger in a file whose tables exist; close it on leaving the context."""
    writer = SqliteWriter(path, telemetry)
    try:
        yield SqliteLedger(writer)
    finally:
        await writer.close()


class SqliteLedger(Ledger):
    """A ledger in a SQLite file. A full disk, a damaged file and a lock held too long all raise LedgerUnavailable."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    @override
    async def record(self, entry: Entry) -> Recorded:
        def insert(connection: sqlite3.Connection) -> Recorded:
            if connection.execute(_RECORD, entry_to_row(entry)).rowcount:
                return Recorded(entry, existing=False)
            found = _find(connection, entry.key)
            if found is None:
                raise LedgerUnavailable
            return Recorded(found, existing=True)

        return await self._run(insert, _RECORD, brief=True)

    @override
    async def find(self, key: str) -> Entry | None:
        return await self._run(lambda connection: _find(connection, key), _FIND, brief=True)

    @override
    async def void(self, key: str) -> Entry | None:
        def update(connection: sqlite3.Connection) -> Entry | None:
            connection.execute(_VOID, {"charge_key": key})
            return _find(connection, key)

        return await self._run(update, _VOID)

    @override
    async def list_captured(self, after: Position, limit: int) -> list[CapturedCharge]:
        def query(connection: sqlite3.Connection) -> list[CapturedCharge]:
            parameters = {"at": after.at, "key": after.key, "limit": limit}
            return [captured_from_row(row) for row in _cursor(connection).execute(_LIST_CAPTURED, parameters)]

        return await self._run(query, _LIST_CAPTURED)

    @override
    async def check(self) -> None:
        await self.find("")

    async def _run(self, work: Work[T], text: str, *, brief: bool = False) -> T:
        try:
            return await self._writer.run(work, text, brief=brief)
        except sqlite3.OperationalError as error:
            raise LedgerUnavailable from error


def _find(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = _cursor(connection).execute(_FIND, {"charge_key": key}).fetchone()
    return None if row is None else entry_from_row(row)


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor
