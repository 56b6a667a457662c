"""Payment's ledger, read where it is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chassis.values.money import Money
from shop_kit.databases import execute

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
    return [charge_from_row(row) for row in execute(database_url, CHARGES)]


def charge_from_row(row: Sequence[Any]) -> Charge:
    """Return the entry in a row that CHARGES selects."""
    key, state, currency_code, units, nanos, card = row
    return Charge(key, state, Money.of(currency_code, units, nanos), bytes(card))
