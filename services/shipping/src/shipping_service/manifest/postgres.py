"""The manifest in PostgreSQL: shared by several replicas."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import override

from chassis.sql.postgres import Postgres, open_postgres
from chassis.sql.postgres_connection import Record
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import Position
from shipping_service.domain import Entry, Manifest, ManifestUnavailable, Recorded, Shipment
from shipping_service.manifest.rows import entry_from_row, entry_to_row

_FIND = "SELECT parcel FROM shipments WHERE shipment_key = :shipment_key"
_RECORD = """
    INSERT INTO shipments (shipment_key, state, tracking_id, parcel)
    VALUES (:shipment_key, :state, :tracking_id, :parcel) ON CONFLICT DO NOTHING RETURNING shipment_key
"""
_LIST = """
    SELECT shipment_key, EXTRACT(EPOCH FROM recorded_at) FROM shipments
    WHERE state = 'SHIPPED' AND (recorded_at, shipment_key) > (to_timestamp(:at), :key)
    ORDER BY recorded_at, shipment_key LIMIT :limit
"""
DELETE_OLD = """
    DELETE FROM shipments WHERE shipment_key IN (
        SELECT shipment_key FROM shipments WHERE recorded_at < now() - make_interval(secs => :older_than_seconds)
        ORDER BY recorded_at LIMIT :limit
    ) RETURNING 1
"""

_CHECK_WITHIN_SECONDS = 1


@asynccontextmanager
async def open_postgres_manifest(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["PostgresManifest"]:
    """Open the manifest in a database whose tables exist, whether or not the server answers at this moment."""
    async with open_postgres(url, telemetry) as server:
        yield PostgresManifest(server)


class PostgresManifest(Manifest):
    """A manifest in PostgreSQL. Each statement commits on its own and is retried if the connection is lost."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    @override
    async def record(self, entry: Entry) -> Recorded:
        if await self._fetch(_RECORD, entry_to_row(entry)):
            return Recorded(entry, existing=False)
        # The insert waits for a concurrent one of the same key to commit: this read finds that entry, unless a failover
        # lost it, or the retention deleted it, in between.
        found = await self.find(entry.key)
        if found is None:
            raise ManifestUnavailable
        return Recorded(found, existing=True)

    @override
    async def find(self, key: str) -> Entry | None:
        rows = await self._fetch(_FIND, {"shipment_key": key})
        return entry_from_row(key, *rows[0]) if rows else None

    @override
    async def list_shipments(self, after: Position, limit: int) -> list[Shipment]:
        rows = await self._fetch(_LIST, {"at": after.at, "key": after.key, "limit": limit})
        return [Shipment(key, float(seconds)) for key, seconds in rows]

    @override
    async def delete_old(self, *, older_than_seconds: float, limit: int) -> int:
        return len(await self._fetch(DELETE_OLD, {"older_than_seconds": older_than_seconds, "limit": limit}))

    @override
    async def check(self) -> None:
        """Return if the manifest can be read within a second."""
        await self._fetch(_FIND, {"shipment_key": ""}, within_seconds=_CHECK_WITHIN_SECONDS)

    async def _fetch(
        self, statement: str, parameters: Mapping[str, Any], *, within_seconds: float | None = None
    ) -> Sequence[Record]:
        try:
            return await self._server.fetch(statement, parameters, within_seconds=within_seconds)
        except TimeoutError as error:
            raise ManifestUnavailable from error
