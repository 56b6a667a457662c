"""Payment's ledger, read where it is stored."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from chassis.sql.url import libpq_url, sqlite_path
from chassis.values.money import Money

CHARGES = "SELECT charge_key, state, currency_code, units, nanos, card_hmac FROM charges WHERE card_hmac IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Charge:
    """An entry of payment's ledger, which identifies the card only by its HMAC."""

    key: str
    state: str
    amount: Money
    card_hmac: bytes


def read_charges(database_url: str) -> list[Charge]:
    """Return all entries of payment's ledger that have a card."""
    return [charge_from_row(row) for row in query(database_url, CHARGES)]


def charge_from_row(row: Sequence[Any]) -> Charge:
    """Return the entry in a row that CHARGES selects."""
    key, state, currency_code, units, nanos, card = row
    return Charge(key, state, Money.of(currency_code, units, nanos), bytes(card))


def query(database_url: str, statement: LiteralString) -> list[tuple[Any, ...]]:
    """Return the rows that a statement selects."""
    path = sqlite_path(database_url)
    if path is not None:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(libpq_url(database_url)) as connection:
        return connection.execute(statement).fetchall()
