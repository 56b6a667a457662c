# ruff: noqa: S608 - the SQL is built only from constants
"""Stores the ledger in the table `charges`, in a SQLite file or in PostgreSQL.

Each statement runs in its own transaction, which is safe to repeat if the database's reply is lost.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chassis.sql.database import Database, Row
from chassis.sql.keyed_store import RECORDED_SECONDS, KeyedStore, Table
from chassis.sql.opening import open_database
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from payment_service.domain import CartOrdered, Entry, Ledger, LedgerUnavailable, Payment, State

MIGRATIONS = Path(__file__).parent / "migrations"

_COLUMNS = """
    charge_key, state, currency_code, units, nanos, card_hmac, hmac_key_id, brand, reason, request_fingerprint,
    purchase_id
"""

RECORD = f"""
    INSERT INTO charges ({_COLUMNS}, transaction_id) VALUES (
        :charge_key, :state, :currency_code, :units, :nanos, :card_hmac, :hmac_key_id, :brand, :reason,
        :request_fingerprint, :purchase_id, :transaction_id
    ) ON CONFLICT DO NOTHING RETURNING charge_key
"""

FIND_PURCHASE = "SELECT 1 FROM charges WHERE purchase_id = :purchase_id AND state = 'CHARGED' AND purchase_id <> ''"

VOID = f"""
    UPDATE charges SET state = 'VOIDED', voided_at = CURRENT_TIMESTAMP
    WHERE charge_key = :key AND state = 'CHARGED' RETURNING {_COLUMNS}, {RECORDED_SECONDS}
"""


_CHARGES = Table("charges", key="charge_key", recorded_id="transaction_id", columns=_COLUMNS, listed=State.CHARGED)


@asynccontextmanager
async def open_ledger(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["SqlLedger"]:
    """Open the ledger in a migrated database. See chassis.sql.url for the URL formats."""
    async with open_database(url, telemetry, unavailable=LedgerUnavailable) as database:
        yield SqlLedger(database)


class SqlLedger(KeyedStore[Entry], Ledger):
    def __init__(self, database: Database) -> None:
        super().__init__(database, _CHARGES, _entry_from_row, partial(Entry, state=State.CHARGED))

    async def record(self, entry: Entry) -> Entry:
        (inserted,) = await self._database.write((RECORD, _entry_to_row(entry)))
        if inserted:
            return entry
        # If the key already has a row, the insert has waited for that row's transaction to commit. Rows are never
        # deleted, so this read finds the row unless a database failover has lost it.
        found = await self.find(entry.key)
        if found is not None:
            return found
        purchase_id = entry.payment and entry.payment.purchase_id
        if purchase_id and await self._database.read(FIND_PURCHASE, {"purchase_id": purchase_id}):
            raise CartOrdered
        raise LedgerUnavailable

    async def void(self, key: str) -> Entry | None:
        (voided,) = await self._database.write((VOID, {"key": key}))
        return _entry_from_row(voided[0]) if voided else await self.find(key)


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
        amount = Money.of(str(row["currency_code"]), int(row["units"]), int(row["nanos"])).in_range()
        fingerprint, purchase_id = row["request_fingerprint"] or "", row["purchase_id"] or ""  # NULL in older rows
        payment = Payment(amount, row["card_hmac"], row["hmac_key_id"], row["brand"], fingerprint, purchase_id)
    recorded_at = float(row["recorded_seconds"])
    return Entry(row["charge_key"], State(row["state"]), payment, row["reason"], recorded_at=recorded_at)
