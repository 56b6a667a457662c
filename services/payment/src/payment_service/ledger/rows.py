"""Converts ledger entries to rows of the table `charges` and back."""

from typing import Any, Protocol

from chassis.values.money import Money
from payment_service.domain import CapturedCharge, Entry, Payment, State

COLUMNS = "charge_key, state, currency_code, units, nanos, card_hmac, hmac_key_id, brand, reason, request_fingerprint"
"""The columns that `entry_from_row` reads."""


class Row(Protocol):
    """A row whose values are read by column name."""

    def __getitem__(self, column: str, /) -> Any: ...


def entry_to_row(entry: Entry) -> dict[str, Any]:
    """Return the values of COLUMNS and of transaction_id, by name."""
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
        "transaction_id": entry.transaction_id,
    }


def entry_from_row(row: Row) -> Entry:
    """Return the entry in a row of COLUMNS."""
    payment = None
    if row["card_hmac"] is not None:
        amount = Money.of(row["currency_code"], row["units"], row["nanos"])
        fingerprint = row["request_fingerprint"] or ""
        payment = Payment(amount, bytes(row["card_hmac"]), row["hmac_key_id"], row["brand"], fingerprint)
    return Entry(row["charge_key"], State(row["state"]), payment, row["reason"])


def captured_from_row(row: Row) -> CapturedCharge:
    """Return the charge in a row of charge_key, currency_code, units, nanos and recorded_seconds."""
    amount = Money.of(row["currency_code"], row["units"], row["nanos"])
    return CapturedCharge(row["charge_key"], amount, float(row["recorded_seconds"]))
