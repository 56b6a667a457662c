"""Stores the manifest in the table `shipments`, in a SQLite file or in PostgreSQL.

Each statement runs in its own transaction, which is safe to repeat if the database's reply is lost.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from chassis.sql.database import Database, Row
from chassis.sql.keyed_store import KeyedStore, Table
from chassis.sql.opening import open_database
from chassis.sql.retention import Deletions
from chassis.telemetry.instruments import Telemetry
from chassis.values.orders import Address, Item
from shipping_service.domain import Entry, Manifest, ManifestUnavailable, Parcel, ShipmentForgotten

MIGRATIONS = Path(__file__).parent / "migrations"

RECORD = """
    INSERT INTO shipments (shipment_key, state, tracking_id, parcel)
    SELECT :shipment_key, :state, :tracking_id, :parcel
    WHERE :charged_at = 0 OR :charged_at > (SELECT deleted_until FROM retention)
    ON CONFLICT DO NOTHING RETURNING shipment_key
"""

OLD = """
    SELECT shipment_key, date_part('epoch', recorded_at) AS at FROM shipments
    WHERE recorded_at < to_timestamp(:older_than) ORDER BY recorded_at LIMIT :limit OFFSET :passed
"""

DELETE = """
    DELETE FROM shipments
    WHERE recorded_at < to_timestamp(:older_than)
        AND shipment_key IN (SELECT value->>'shipment_key' FROM json_each(:items))
    RETURNING shipment_key
"""


_SHIPMENTS = Table(
    "shipments", key="shipment_key", recorded_id="tracking_id", columns="shipment_key, parcel", listed="SHIPPED"
)


@asynccontextmanager
async def open_manifest(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["SqlManifest"]:
    """Open the manifest in a migrated database. See chassis.sql.url for the URL formats."""
    async with open_database(url, telemetry, unavailable=ManifestUnavailable) as database:
        yield SqlManifest(database)


class SqlManifest(KeyedStore[Entry], Manifest):
    def __init__(self, database: Database) -> None:
        super().__init__(database, _SHIPMENTS, _entry_from_row, Entry)
        self.deletions = Deletions(database, "manifest entries", "shipment_key", OLD, [DELETE])

    async def record(self, entry: Entry, charged_at: float = 0.0) -> Entry:
        (inserted,) = await self._database.write((RECORD, {**_entry_to_row(entry), "charged_at": charged_at}))
        if inserted:
            return entry
        # If the key already has a row, the insert has waited for that row's transaction to commit. So this read finds
        # the row, unless a database failover has lost it or retention has deleted it.
        found = await self.find(entry.key)
        if found is None and 0 < charged_at <= await self.deletions.complete_since():
            raise ShipmentForgotten("the order was charged before the oldest records of shipments")
        if found is None:
            raise ManifestUnavailable
        return found


def _entry_to_row(entry: Entry) -> dict[str, Any]:
    return {
        "shipment_key": entry.key,
        "state": "FENCED" if entry.parcel is None else "SHIPPED",
        "tracking_id": entry.tracking_id,
        "parcel": None if entry.parcel is None else orjson.dumps(entry.parcel).decode(),
    }


def _entry_from_row(row: Row) -> Entry:
    parcel = None
    if row["parcel"] is not None:
        stored = orjson.loads(row["parcel"])
        parcel = Parcel(Address(**stored["address"]), tuple(Item(**item) for item in stored["items"]))
    return Entry(row["shipment_key"], parcel, recorded_at=float(row["recorded_seconds"]))
