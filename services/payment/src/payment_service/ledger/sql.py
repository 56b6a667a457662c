# ruff: noqa: S608 - the fragments are constants
"""Stores the ledger in the table `charges`, in a SQLite file or in PostgreSQL.

Each statement is its own transaction, which is safe to repeat if its reply is lost.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from chassis.sql.database import Database, Row, listed
from chassis.sql.migrate import migrate
from chassis.sql.opening import open_database
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from chassis.values.paging import MAX_SECONDS, Position
from payment_service.domain import CartOrdered, Entry, Ledger, LedgerUnavailable, Payment, State

log = structlog.get_logger()

MIGRATIONS = Path(__file__).parent / "migrations"

_CHECK_WITHIN_SECONDS = 1

_COLUMNS = """
    charge_key, state, currency_code, units, nanos, card_hmac, hmac_key_id, brand, reason, request_fingerprint,
    purchase_id
"""

_ENTRY = f"{_COLUMNS}, date_part('epoch', recorded_at) AS recorded_seconds"

FIND = f"SELECT {_ENTRY} FROM charges WHERE charge_key = :charge_key"

RECORD = f"""
    INSERT INTO charges ({_COLUMNS}, transaction_id) VALUES (
        :charge_key, :state, :currency_code, :units, :nanos, :card_hmac, :hmac_key_id, :brand, :reason,
        :request_fingerprint, :purchase_id, :transaction_id
    ) ON CONFLICT DO NOTHING RETURNING charge_key
"""

FIND_PURCHASE = "SELECT 1 FROM charges WHERE purchase_id = :purchase_id AND state = 'CHARGED' AND purchase_id <> ''"

VOID = f"""
    UPDATE charges SET state = 'VOIDED', voided_at = CURRENT_TIMESTAMP
    WHERE charge_key = :charge_key AND state = 'CHARGED' RETURNING {_ENTRY}
"""

LIST_CAPTURED = f"""
    SELECT {_ENTRY}, transaction_id FROM charges
    WHERE state = 'CHARGED' AND (recorded_at, charge_key) > (to_timestamp(:at), :key)
    ORDER BY recorded_at, charge_key LIMIT :limit
"""


# An index finds the range, which contains all keys that begin with the id and a colon, whatever the collation.
LIST_OF_ORDERS = f"""
    SELECT {_ENTRY}, transaction_id FROM json_each(:items) CROSS JOIN charges
    WHERE charge_key >= value->>'id' AND charge_key < (value->>'id') || 'z'
        AND substr(charge_key || ':', 1, length(value->>'id') + 1) = (value->>'id') || ':'
    AND state = 'CHARGED' ORDER BY recorded_at, charge_key
"""


@asynccontextmanager
async def open_ledger(url: str, telemetry: Telemetry | None = None) -> AsyncIterator[Ledger]:
    """Migrate the database and open its ledger. See chassis.sql.url for the URL formats."""
    migrate(url, MIGRATIONS)
    async with open_database(url, telemetry, unavailable=LedgerUnavailable) as opened:
        yield SqlLedger(opened)


class SqlLedger(Ledger):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    async def record(self, entry: Entry) -> Entry:
        (inserted,) = await self._database.write((RECORD, _entry_to_row(entry)))
        if inserted:
            return entry
        # The insert waits for a concurrent insert under the same key to commit, and rows are never deleted. So this
        # read finds the other row, unless a failover has lost it.
        found = await self.find(entry.key)
        if found is not None:
            return found
        purchase_id = entry.payment and entry.payment.purchase_id
        if purchase_id and await self._database.read(FIND_PURCHASE, {"purchase_id": purchase_id}):
            raise CartOrdered
        raise LedgerUnavailable

    @override
    async def find(self, key: str) -> Entry | None:
        rows = await self._database.read(FIND, {"charge_key": key})
        return _entry_from_row(rows[0]) if rows else None

    @override
    async def void(self, key: str) -> Entry | None:
        (voided,) = await self._database.write((VOID, {"charge_key": key}))
        return _entry_from_row(voided[0]) if voided else await self.find(key)

    @override
    async def list_captured(self, after: Position, limit: int) -> list[Entry]:
        parameters = {"at": after.at, "key": after.key, "limit": limit}
        return [_listed_from_row(row) for row in await self._database.report(LIST_CAPTURED, parameters)]

    @override
    async def list_of_orders(self, order_ids: Sequence[str]) -> list[Entry]:
        rows = await self._database.report(LIST_OF_ORDERS, {"items": listed({"id": id_} for id_ in order_ids)})
        return [_listed_from_row(row) for row in rows]

    @override
    async def check(self) -> None:
        await self._database.read(FIND, {"charge_key": ""}, within_seconds=_CHECK_WITHIN_SECONDS)


def _entry_to_row(entry: Entry) -> dict[str, Any]:
    payment = entry.payment
    return {
        "charge_key": entry.key,
        "state": entry.state.value,
        "currency_code": payment and payment.amount.currency_code,
        "units": payment and payment.amount.units,
        "nanos": payment and payment.amount.nanos,
        "card_hmac": payment and payment.card_hmac,
        "hmac_key_id": payment and payment.hmac_key_id,
        "brand": payment and payment.brand,
        "reason": entry.reason,
        "request_fingerprint": payment and payment.request_fingerprint,
        "purchase_id": payment and payment.purchase_id,
        "transaction_id": entry.transaction_id,
    }


def _entry_from_row(row: Row) -> Entry:
    payment = None
    if row["card_hmac"] is not None:
        amount = Money.of(row["currency_code"], int(row["units"]), int(row["nanos"]))
        fingerprint, purchase_id = row["request_fingerprint"] or "", row["purchase_id"] or ""  # NULL in older rows
        payment = Payment(amount, row["card_hmac"], row["hmac_key_id"], row["brand"], fingerprint, purchase_id)
    return Entry(row["charge_key"], State(row["state"]), payment, row["reason"], float(row["recorded_seconds"]))


def _listed_from_row(row: Row) -> Entry:
    try:
        entry = _entry_from_row(row)
    except (TypeError, ValueError):
        log.exception("charge cannot be decoded", charge_key=row["charge_key"])
        entry = Entry(row["charge_key"], State.CHARGED, recorded_at=row["recorded_seconds"] or MAX_SECONDS)
    return replace(entry, recorded_id=row["transaction_id"])
