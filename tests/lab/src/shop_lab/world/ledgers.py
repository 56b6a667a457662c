"""Read the ledgers of checkout's dependencies where they are stored: charges, shipments and sent e-mails."""

import hmac
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, TypeVar

from chassis.values.money import Money
from shop_kit.charges import Charge
from shop_kit.databases import execute
from shop_lab.world.customer_plan import Intent
from shop_lab.world.evidence import Confirmation, JournalRecord, Shipment

E = TypeVar("E")

CARD_MONTH = 12
ORDERS = (
    "SELECT email, order_id, state, currency_code, total_units, total_nanos, tracking_id, reason"
    " FROM orders ORDER BY created_at"
)
_LETTERS = "SELECT message FROM letters WHERE message IS NOT NULL"
SHIPMENTS = "SELECT tracking_id, parcel FROM shipments WHERE parcel IS NOT NULL"
SENT = "SELECT tracking_id FROM shipments WHERE parcel IS NOT NULL AND substr(shipment_key, 1, 36) = '{}'"
"""The tracking ids of an order's shipments."""

_CAPTURED = frozenset({"CHARGED", "FENCED"})
"""A fence has no card, so an entry with one was a charge that a fence has overwritten."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Captured charges, shipments and confirmations by order number.

    Attributes:
        unmatched_entries: entries that belong to no order, in words.
    """

    charges: Mapping[int, tuple[Money, ...]]
    shipments: Mapping[int, tuple[Shipment, ...]]
    confirmations: Mapping[int, tuple[Confirmation, ...]]
    unmatched_entries: tuple[str, ...]


def match_ledgers(
    intents: Sequence[Intent],
    charges: Iterable[Charge],
    shipments: Iterable[tuple[str, Shipment]],
    confirmations: Iterable[Confirmation],
    hmac_key: bytes,
) -> Ledgers:
    """Match each ledger entry to its order: by the card's HMAC, the street or the recipient."""
    unmatched: list[str] = []
    cards = {card_hmac(intent, hmac_key): intent.number for intent in intents}
    captured = [
        (charge.card_hmac, charge.amount, f"charge {charge.key}") for charge in charges if charge.state in _CAPTURED
    ]
    streets = {intent.street: intent.number for intent in intents}
    shipped = [(street, shipment, f"shipment {shipment.tracking_id}") for street, shipment in shipments]
    recipients = {intent.email: intent.number for intent in intents}
    confirmed = [(found.recipient, found, f"confirmation of {found.order_id}") for found in confirmations]
    return Ledgers(
        _by_number(cards, captured, unmatched),
        _by_number(streets, shipped, unmatched),
        _by_number(recipients, confirmed, unmatched),
        tuple(unmatched),
    )


def _by_number(
    numbers: Mapping[Any, int], entries: Iterable[tuple[object, E, str]], unmatched: list[str]
) -> dict[int, tuple[E, ...]]:
    """Group the entries of a ledger by order number. Report those whose identity is not that of an order."""
    matched: defaultdict[int, tuple[E, ...]] = defaultdict(tuple)
    for identity, entry, description in entries:
        if identity in numbers:
            matched[numbers[identity]] += (entry,)
        else:
            unmatched.append(f"{description} belongs to no order")
    return dict(matched)


def card_hmac(intent: Intent, hmac_key: bytes) -> bytes:
    """Return what payment stores instead of the number of the order's card."""
    return hmac.digest(hmac_key, f"{intent.card_number}|{intent.card_year}|{CARD_MONTH}".encode(), "sha256")


def records_by_recipient(rows: Iterable[Iterable[Any]]) -> dict[str, list[JournalRecord]]:
    """Return the rows that ORDERS selects by the recipient of their confirmation, oldest first."""
    records: dict[str, list[JournalRecord]] = defaultdict(list)
    for recipient, order_id, state, code, units, nanos, *others in rows:
        records[recipient].append(JournalRecord(order_id, state, Money.of(code, units, nanos), *others))
    return records


def read_manifest(database_url: str) -> list[tuple[str, Shipment]]:
    """Return the street and the shipment of each entry of shipping's manifest that is not a fence."""
    return [shipment_from_row(*row) for row in execute(database_url, SHIPMENTS)]


def shipment_from_row(tracking_id: str, stored_parcel: str) -> tuple[str, Shipment]:
    parcel = json.loads(stored_parcel)
    items = {item["product_id"]: item["quantity"] for item in parcel["items"]}
    return parcel["address"]["street_address"], Shipment(tracking_id, items)


def read_confirmations(sent: Iterable[EmailMessage], spool_url: str) -> list[Confirmation]:
    """Return the confirmations that were sent, and those that wait in the spool."""
    confirmations = [parse_confirmation(message) for message in sent]
    sent_ids = {confirmation.order_id for confirmation in confirmations}
    letters = [bytes(message) for (message,) in execute(spool_url, _LETTERS)]
    waiting = [parse_confirmation(message_from_bytes(letter, policy=policy.default)) for letter in letters]
    return confirmations + [confirmation for confirmation in waiting if confirmation.order_id not in sent_ids]


def parse_confirmation(message: EmailMessage) -> Confirmation:
    """Return the confirmation in an e-mail, its text with single spaces."""
    body = message.get_body(("plain",))
    text = " ".join(str(body.get_content()).split()) if body else ""
    order_id = str(message["Message-ID"]).strip().removeprefix("<").partition("@")[0]
    return Confirmation(order_id, str(message["To"]).strip(), text)
