# ruff: noqa: S608 - the fragments are constants
"""Stores the manifest in the table `shipments`, in a SQLite file or in PostgreSQL.

Each statement is its own transaction, which is safe to repeat if its reply is lost.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import structlog
from typing_extensions import override

from chassis.sql.database import Database, Row, listed
from chassis.sql.migrate import migrate
from chassis.sql.opening import open_database
from chassis.sql.retention import Deletions
from chassis.telemetry.instruments import Telemetry
from chassis.values.addresses import Address
from chassis.values.paging import MAX_SECONDS, Position
from shipping_service.domain import Entry, Item, Manifest, ManifestUnavailable, Parcel, ShipmentForgotten

log = structlog.get_logger()

MIGRATIONS = Path(__file__).parent / "migrations"

_CHECK_WITHIN_SECONDS = 1

_ENTRY = "shipment_key, parcel, date_part('epoch', recorded_at) AS recorded_seconds"

FIND = f"SELECT {_ENTRY} FROM shipments WHERE shipment_key = :shipment_key"

RECORD = """
    INSERT INTO shipments (shipment_key, state, tracking_id, parcel)
    SELECT :shipment_key, :state, :tracking_id, :parcel
    WHERE :charged_at = 0 OR :charged_at > (SELECT deleted_until FROM retention)
    ON CONFLICT DO NOTHING RETURNING shipment_key
"""

LIST = f"""
    SELECT {_ENTRY}, tracking_id FROM shipments
    WHERE state = 'SHIPPED' AND (recorded_at, shipment_key) > (to_timestamp(:at), :key)
    ORDER BY recorded_at, shipment_key LIMIT :limit
"""

# An index finds the range, which contains all keys that begin with the id and a colon, whatever the collation.
LIST_OF_ORDERS = f"""
    SELECT {_ENTRY}, tracking_id FROM json_each(:items) CROSS JOIN shipments
    WHERE shipment_key >= value->>'id' AND shipment_key < (value->>'id') || 'z'
        AND substr(shipment_key || ':', 1, length(value->>'id') + 1) = (value->>'id') || ':'
    AND state = 'SHIPPED' ORDER BY recorded_at, shipment_key
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


@asynccontextmanager
async def open_manifest(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["SqlManifest"]:
    """Migrate the database and open its manifest. See chassis.sql.url for the URL formats."""
    migrate(url, MIGRATIONS)
    async with open_database(url, telemetry, unavailable=ManifestUnavailable) as opened:
        yield SqlManifest(opened)


class SqlManifest(Manifest):
    def __init__(self, database: Database) -> None:
        self.deletions = Deletions(database, "shipment_key", OLD, [DELETE])
        self._database = database

    @override
    async def record(self, entry: Entry, charged_at: float = 0.0) -> Entry:
        (inserted,) = await self._database.write((RECORD, {**_entry_to_row(entry), "charged_at": charged_at}))
        if inserted:
            return entry
        # The insert waits for a concurrent insert under the same key to commit. So this read finds the other row,
        # unless a failover has lost it or retention has deleted it.
        found = await self.find(entry.key)
        if found is None and 0 < charged_at <= await self.complete_since():
            raise ShipmentForgotten("the order was charged before the oldest records of shipments")
        if found is None:
            raise ManifestUnavailable
        return found

    @override
    async def find(self, key: str) -> Entry | None:
        rows = await self._database.read(FIND, {"shipment_key": key})
        return _entry_from_row(rows[0]) if rows else None

    @override
    async def list_shipments(self, after: Position, limit: int) -> list[Entry]:
        rows = await self._database.report(LIST, {"at": after.at, "key": after.key, "limit": limit})
        return [_listed_from_row(row) for row in rows]

    @override
    async def list_of_orders(self, order_ids: Sequence[str]) -> list[Entry]:
        rows = await self._database.report(LIST_OF_ORDERS, {"items": listed({"id": id_} for id_ in order_ids)})
        return [_listed_from_row(row) for row in rows]

    @override
    async def complete_since(self) -> float:
        return await self.deletions.complete_since()

    @override
    async def check(self) -> None:
        await self._database.read(FIND, {"shipment_key": ""}, within_seconds=_CHECK_WITHIN_SECONDS)


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
    return Entry(row["shipment_key"], parcel, float(row["recorded_seconds"]))


def _listed_from_row(row: Row) -> Entry:
    try:
        entry = _entry_from_row(row)
    except (KeyError, TypeError, ValueError):
        log.exception("shipment cannot be decoded", shipment_key=row["shipment_key"])
        entry = Entry(row["shipment_key"], recorded_at=row["recorded_seconds"] or MAX_SECONDS)
    return replace(entry, recorded_id=row["tracking_id"])
