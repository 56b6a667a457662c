"""The ledgers of payment, shipping and email are read from their files and matched to orders."""

import json
import sqlite3
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path

import pytest

from chassis.values.money import Money
from shop_lab.world.customer_plan import Line, valid_intent
from shop_lab.world.evidence import Shipment
from shop_lab.world.ledgers import (
    Charge,
    card_hmac,
    match_ledgers,
    read_charges,
    read_confirmations,
    read_manifest,
)

HMAC_KEY = b"key" * 16
INTENT = valid_intent(5, "customer-5", [Line("mug", 1)], "key")
EUROS = Money.of("EUR", 5)
SHIPMENT = (INTENT.street, Shipment("a", {"mug": 1}))


def charge(state: str = "CHARGED", card: bytes | None = None) -> Charge:
    return Charge("key", state, EUROS, card or card_hmac(INTENT, HMAC_KEY))


def test_charges_are_read_with_their_amounts(tmp_path: Path) -> None:
    path = tmp_path / "payment.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE charges (charge_key, state, currency_code, units, nanos, card_hmac)")
        connection.execute(
            "INSERT INTO charges VALUES ('k', 'CHARGED', 'EUR', 5, 0, x'01'), ('f', 'FENCED', '', 0, 0, NULL)"
        )
    assert read_charges(f"sqlite:///{path}") == [Charge("k", "CHARGED", EUROS, b"\x01")]


def test_shipments_are_read_with_their_streets_and_without_fences(tmp_path: Path) -> None:
    path = tmp_path / "shipping.db"
    parcel = {"address": {"street_address": INTENT.street}, "items": [{"product_id": "mug", "quantity": 1}]}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE shipments (tracking_id, parcel)")
        connection.execute("INSERT INTO shipments VALUES ('a', ?), ('fenced', NULL)", (json.dumps(parcel),))
    assert read_manifest(f"sqlite:///{path}") == [SHIPMENT]


def test_confirmations_were_sent_or_wait_in_the_spool(tmp_path: Path) -> None:
    (tmp_path / "sent.eml").write_bytes(confirmation_of("sent"))
    path = tmp_path / "email.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE letters (message)")
        connection.executemany(
            "INSERT INTO letters VALUES (?)", [(confirmation_of("sent"),), (confirmation_of("waiting"),)]
        )
    confirmations = read_confirmations(tmp_path, f"sqlite:///{path}")
    assert [confirmation.order_id for confirmation in confirmations] == ["sent", "waiting"]
    assert {(confirmation.recipient, confirmation.text) for confirmation in confirmations} == {
        ("a@example.com", "two words")
    }


def confirmation_of(order_id: str) -> bytes:
    message = EmailMessage()
    message["To"], message["Message-ID"] = "a@example.com", f"<{order_id}@shop>"
    message.set_content("two\n  words\n")
    return bytes(message)


def test_entries_are_matched_by_card_and_street() -> None:
    ledgers = match_ledgers([INTENT], [charge()], [SHIPMENT], [], HMAC_KEY)
    assert ledgers.charges == {5: (EUROS,)}
    assert ledgers.shipments == {5: (Shipment("a", {"mug": 1}),)}
    assert ledgers.unmatched_entries == ()


@pytest.mark.parametrize("state", ["VOIDED", "DECLINED"])
def test_a_charge_that_was_not_captured_does_not_count(state: str) -> None:
    assert match_ledgers([INTENT], [charge(state)], [], [], HMAC_KEY).charges == {}


def test_a_charge_that_a_fence_has_overwritten_was_captured() -> None:
    assert match_ledgers([INTENT], [charge("FENCED")], [], [], HMAC_KEY).charges == {5: (EUROS,)}


def test_entries_that_belong_to_no_order_are_reported() -> None:
    elsewhere = [("elsewhere", Shipment("a", {"mug": 1}))]
    unmatched = match_ledgers([INTENT], [charge(card=b"another")], elsewhere, [], HMAC_KEY).unmatched_entries
    assert unmatched == ("charge key belongs to no order", "shipment a belongs to no order")
