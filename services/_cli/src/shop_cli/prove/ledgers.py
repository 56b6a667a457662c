"""Reads the ledgers of those whom checkout calls: charges, shipments and e-mails, each as its owner stores it."""

import email
import email.policy
import hmac
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Generic, TypeVar

from chassis.database import libpq_url, sqlite_path
from chassis.money import Money
from shop_cli.prove.evidence import Mail, Shipment
from shop_cli.prove.plan import Intent

E = TypeVar("E")

CARD_MONTH = 12
_CHARGES = "SELECT charge_key, state, currency_code, units, nanos, card_hmac FROM charges WHERE card_hmac IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Charge:
    """An entry of payment's ledger; the card is known by its HMAC alone."""

    key: str
    state: str
    amount: Money
    card_hmac: bytes


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Captured charges, shipments and mails, by the number of the order that they belong to.

    Attributes:
        strangers: entries that belong to none, in words.
    """

    charges: Mapping[int, tuple[Money, ...]]
    shipments: Mapping[int, tuple[Shipment, ...]]
    mails: Mapping[int, tuple[Mail, ...]]
    strangers: tuple[str, ...]


def join(
    intents: Sequence[Intent], charges: Iterable[Charge], manifest: Path, outbox: Path, hmac_key: bytes
) -> Ledgers:
    """Find each entry's order: by the card's HMAC, by the street, by the recipient."""
    charged = _Filing[Money]({card_hmac(intent, hmac_key): intent.number for intent in intents})
    shipped = _Filing[Shipment]({intent.street: intent.number for intent in intents})
    mailed = _Filing[Mail]({intent.email: intent.number for intent in intents})
    for charge in charges:
        if charge.state == "CHARGED":
            charged.file(charge.card_hmac, charge.amount, f"charge {charge.key}")
    for street, shipment in read_manifest(manifest):
        shipped.file(street, shipment, f"shipment {shipment.tracking_id}")
    for mail in read_outbox(outbox):
        mailed.file(mail.recipient, mail, f"mail of {mail.order_id}")
    strangers = (*charged.strangers, *shipped.strangers, *mailed.strangers)
    return Ledgers(charged.done(), shipped.done(), mailed.done(), strangers)


class _Filing(Generic[E]):
    """Entries of one ledger, by the number of the order that a name of theirs tells."""

    def __init__(self, numbers: Mapping[Any, int]) -> None:
        self.strangers: list[str] = []
        self._numbers = numbers
        self._filed: dict[int, list[E]] = defaultdict(list)

    def file(self, name: object, entry: E, words: str) -> None:
        """File an entry; `words` describe it if it belongs to no order."""
        if name in self._numbers:
            self._filed[self._numbers[name]].append(entry)
        else:
            self.strangers.append(f"{words} belongs to no order")

    def done(self) -> dict[int, tuple[E, ...]]:
        """All that was filed."""
        return {number: tuple(entries) for number, entries in self._filed.items()}


def card_hmac(intent: Intent, hmac_key: bytes) -> bytes:
    """What payment stores of a card in place of its number."""
    return hmac.digest(hmac_key, f"{intent.card_number}|{intent.card_year}|{CARD_MONTH}".encode(), "sha256")


def read_charges(database_url: str) -> list[Charge]:
    """All entries of payment's ledger that have a card."""
    path = sqlite_path(database_url)
    if path is not None:
        with closing(sqlite3.connect(path, timeout=10)) as connection:
            return [_charge(row) for row in connection.execute(_CHARGES)]
    import psycopg  # noqa: PLC0415 - SQLite does not need it

    with psycopg.connect(libpq_url(database_url)) as connection:
        return [_charge(row) for row in connection.execute(_CHARGES)]


def _charge(row: tuple[Any, ...]) -> Charge:
    key, state, currency_code, units, nanos, card = row
    return Charge(key, state, Money.of(currency_code, units, nanos), bytes(card))


def read_manifest(path: Path) -> Iterator[tuple[str, Shipment]]:
    """The streets and their shipments. One that was written down twice, under one tracking id, is one."""
    seen: set[str] = set()
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # torn by a crash: nobody was told of it
            continue
        if entry["tracking_id"] not in seen:
            seen.add(entry["tracking_id"])
            items = {item["product_id"]: item["quantity"] for item in entry["items"]}
            yield entry["street_address"], Shipment(entry["tracking_id"], items)


def read_outbox(folder: Path) -> Iterator[Mail]:
    """The confirmations of a folder of .eml files."""
    for path in sorted(folder.glob("*.eml")):
        message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
        yield to_mail(message)


def to_mail(message: EmailMessage) -> Mail:
    """What matters of a confirmation, its text with single blanks."""
    body = message.get_body(("plain",))
    text = " ".join(str(body.get_content()).split()) if body else ""
    order_id = str(message["Message-ID"]).strip().removeprefix("<").partition("@")[0]
    return Mail(order_id, str(message["To"]).strip(), text)
