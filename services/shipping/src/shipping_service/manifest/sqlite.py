"""The manifest in a SQLite file: the embedded default."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from typing_extensions import override

from chassis.sql.sqlite import SqliteWriter, Work
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import Position
from shipping_service.domain import Entry, Manifest, ManifestUnavailable, Recorded, Shipment
from shipping_service.manifest.rows import entry_from_row, entry_to_row

_FIND = "SELECT parcel FROM shipments WHERE shipment_key = :shipment_key"
_RECORD = """
    INSERT INTO shipments (shipment_key, state, tracking_id, parcel)
    VALUES (:shipment_key, :state, :tracking_id, :parcel) ON CONFLICT DO NOTHING
"""
_LIST = """
    SELECT shipment_key, strftime('%s', recorded_at) FROM shipments
    WHERE state = 'SHIPPED' AND (recorded_at, shipment_key) > (datetime(:at, 'unixepoch'), :key)
    ORDER BY recorded_at, shipment_key LIMIT :limit
"""
DELETE_OLD = """
    DELETE FROM shipments WHERE shipment_key IN (
        SELECT shipment_key FROM shipments
        WHERE recorded_at < datetime(strftime('%s', 'now') - :older_than_seconds, 'unixepoch')
        ORDER BY recorded_at LIMIT :limit
    )
"""

T = TypeVar("T")


@asynccontextmanager
async def open_sqlite_manifest(path: Path, telemetry: Telemetry | None = None) -> AsyncIterator["SqliteManifest"]:
    """Open the manifest in a file whose tables exist; close it on leaving the context."""
    writer = SqliteWriter(path, telemetry)
    try:
        yield SqliteManifest(writer)
    finally:
        await writer.close()


class SqliteManifest(Manifest):
    """A manifest in a SQLite file. A full disk and a lock held too long raise ManifestUnavailable."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    @override
    async def record(self, entry: Entry) -> Recorded:
        def insert(connection: sqlite3.Connection) -> Recorded | None:
            if connection.execute(_RECORD, entry_to_row(entry)).rowcount:
                return Recorded(entry, existing=False)
            found = _find(connection, entry.key)
            return None if found is None else Recorded(found, existing=True)

        recorded = await self._run(insert, _RECORD, brief=True)
        if recorded is None:
            raise ManifestUnavailable
        return recorded

    @override
    async def find(self, key: str) -> Entry | None:
        return await self._run(lambda connection: _find(connection, key), _FIND, brief=True)

    @override
    async def list_shipments(self, after: Position, limit: int) -> list[Shipment]:
        parameters = {"at": after.at, "key": after.key, "limit": limit}
        rows = await self._run(lambda connection: connection.execute(_LIST, parameters).fetchall(), _LIST)
        return [Shipment(key, float(seconds)) for key, seconds in rows]

    @override
    async def delete_old(self, *, older_than_seconds: float, limit: int) -> int:
        parameters = {"older_than_seconds": older_than_seconds, "limit": limit}
        return await self._run(lambda connection: connection.execute(DELETE_OLD, parameters).rowcount, DELETE_OLD)

    @override
    async def check(self) -> None:
        await self.find("")

    async def _run(self, work: Work[T], text: str, *, brief: bool = False) -> T:
        try:
            return await self._writer.run(work, text, brief=brief)
        except sqlite3.OperationalError as error:
            raise ManifestUnavailable from error


def _find(connection: sqlite3.Connection, key: str) -> Entry | None:
    row = connection.execute(_FIND, {"shipment_key": key}).fetchone()
    return None if row is None else entry_from_row(key, *row)
