"""Opens the ledger that DATABASE_URL names, and says what both kinds have in common: a row."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from chassis import database
from chassis.money import Money
from payment_service.domain import Entry, Ledger, Payment, State

MIGRATIONS = Path(__file__).parent / "migrations"
READ_COLUMNS = "charge_key, state, currency_code, units, nanos, card_hmac, brand, last_four, reason"


def open_ledger(url: str) -> AbstractAsyncContextManager[Ledger]:
    """A SQLite file's ledger or a PostgreSQL database's, open within the context; its tables must exist."""
    # Only one of the drivers is worth its time to import.
    path = database.sqlite_path(url)
    if path is not None:
        from payment_service.store_sqlite import sqlite_ledger  # noqa: PLC0415

        return sqlite_ledger(path)
    from payment_service.store_postgres import postgres_ledger  # noqa: PLC0415

    return postgres_ledger(database.libpq_url(url))


def to_row(entry: Entry) -> tuple[Any, ...]:
    """READ_COLUMNS of an entry, then its transaction id."""
    payment = entry.payment
    if payment is None:
        return (entry.key, entry.state.value, None, None, None, None, None, None, entry.reason, entry.transaction_id)
    return (
        entry.key,
        entry.state.value,
        payment.amount.currency_code,
        payment.amount.units,
        payment.amount.nanos,
        payment.card_hmac,
        payment.brand,
        payment.last_four,
        entry.reason,
        entry.transaction_id,
    )


def to_entry(row: Sequence[Any]) -> Entry:
    """The entry that READ_COLUMNS hold."""
    key, state, currency_code, units, nanos, card_hmac, brand, last_four, reason = row
    payment = card_hmac and Payment(Money.of(currency_code, units, nanos), bytes(card_hmac), brand, last_four)
    return Entry(key, State(state), payment or None, reason)
