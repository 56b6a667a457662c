"""The ledger in PostgreSQL: shared by several replicas."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import override

from chassis.sql.postgres import Postgres, open_postgres
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import Position
from payment_service.domain import CapturedCharge, Entry, Ledger, LedgerUnavailable, Recorded
from payment_service.ledger.rows import COLUMNS, Row, captured_from_row, entry_from_row, entry_to_row

_FIND = f"SELECT {COLUMNS} FROM charges WHERE charge_key = :charge_key"  # noqa: S608 - a constant
_RECORD = f"""
    INSERT INTO charges ({COLUMNS}, transaction_id) VALUES (
        :charge_key, :state, :currency_code, :units, :nanos, :card_hmac, :hmac_key_id, :brand,
        :reason, :request_fingerprint, :transaction_id
    ) ON CONFLICT DO NOTHING RETURNING charge_key
"""  # noqa: S608
_VOID = f"""
    UPDATE charges SET state = 'VOIDED', voided_at = now() WHERE charge_key = :charge_key AND state = 'CHARGED'
    RETURNING {COLUMNS}
"""  # noqa: S608
_LIST_CAPTURED = """
    SELECT charge_key, currency_code, units, nanos, EXTRACT(EPOCH FROM recorded_at) AS recorded_seconds FROM charges
    WHERE state = 'CHARGED' AND (recorded_at, charge_key) > (to_timestamp(:at), :key)
    ORDER BY recorded_at, charge_key LIMIT :limit
"""

_CHECK_WITHIN_SECONDS = 1


@asynccontextmanager
async def open_postgres_ledger(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["PostgresLedger"]:
    """Open the ledger in a database whose tables exist, whether or not the server answers at this moment."""
    async with open_postgres(url, telemetry) as server:
        yield PostgresLedger(server)


class PostgresLedger(Ledger):
    """A ledger in PostgreSQL. Each statement commits on its own; all are repeatable, so a lost reply is retried."""

    def __init__(self, server: Postgres) -> None:
        self._server = server

    @override
    async def record(self, entry: Entry) -> Recorded:
        if await self._fetch(_RECORD, entry_to_row(entry)):
            return Recorded(entry, existing=False)
        # The insert waited for a concurrent one of the same key to commit, and no row is ever deleted: the read finds
        # that entry, unless a failover lost it in between.
        found = await self.find(entry.key)
        if found is None:
            raise LedgerUnavailable
        return Recorded(found, existing=True)

    @override
    async def find(self, key: str) -> Entry | None:
        rows = await self._fetch(_FIND, {"charge_key": key})
        return entry_from_row(rows[0]) if rows else None

    @override
    async def void(self, key: str) -> Entry | None:
        rows = await self._fetch(_VOID, {"charge_key": key})
        return entry_from_row(rows[0]) if rows else await self.find(key)

    @override
    async def list_captured(self, after: Position, limit: int) -> list[CapturedCharge]:
        rows = await self._fetch(_LIST_CAPTURED, {"at": after.at, "key": after.key, "limit": limit})
        return [captured_from_row(row) for row in rows]

    @override
    async def check(self) -> None:
        """Return if the ledger can be read within a second."""
        await self._fetch(_FIND, {"charge_key": ""}, within_seconds=_CHECK_WITHIN_SECONDS)

    async def _fetch(
        self, statement: str, parameters: Mapping[str, Any], *, within_seconds: float | None = None
    ) -> Sequence[Row]:
        try:
            return await self._server.fetch(statement, parameters, within_seconds=within_seconds)
        except TimeoutError as error:
            raise LedgerUnavailable from error
