"""The entries of ledgers are matched to orders. `test_prove.py` reads those of real services."""

import sqlite3
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path

import pytest

from chassis.values.money import Money
from shop_kit.charges import Charge
from shop_lab.world.customer_plan import Line, valid_intent
from shop_lab.world.evidence import Confirmation, Shipment
from shop_lab.world.ledgers import card_hmac, match_ledgers, read_confirmations

HMAC_KEY = b"key" * 16
INTENT = valid_intent(5, "customer-5", [Line("mug", 1)], "key")
EUROS = Money.of("EUR", 5)


def charge(state: str = "CHARGED", card: bytes | None = None) -> Charge:
    return Charge("key", state, EUROS, card or card_hmac(INTENT, HMAC_KEY))


def confirmation_of(order_id: str) -> EmailMessage:
    message = EmailMessage()
    message["To"], message["Message-ID"] = "a@example.com", f"<{order_id}@shop>"
    message.set_content("two\n  words\n")
    return message


def test_confirmations_were_sent_or_wait_in_the_spool(tmp_path: Path) -> None:
    path = tmp_path / "email.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE letters (message)")
        letters = [(confirmation_of(order_id).as_bytes(),) for order_id in ("sent", "waiting")]
        connection.executemany("INSERT INTO letters VALUES (?)", letters)
    confirmations = read_confirmations([confirmation_of("sent")], f"sqlite:///{path}")
    assert confirmations == [Confirmation(order_id, "a@example.com", "two words") for order_id in ("sent", "waiting")]


@pytest.mark.parametrize("state", ["VOIDED", "DECLINED"])
def test_a_charge_that_was_not_captured_does_not_count(state: str) -> None:
    assert match_ledgers([INTENT], [charge(state)], [], [], HMAC_KEY).charges == {}


def test_a_charge_that_a_fence_has_overwritten_was_captured() -> None:
    assert match_ledgers([INTENT], [charge("FENCED")], [], [], HMAC_KEY).charges == {5: (EUROS,)}


def test_entries_that_belong_to_no_order_are_reported() -> None:
    elsewhere = [("elsewhere", Shipment("a", {"mug": 1}))]
    unmatched = match_ledgers([INTENT], [charge(card=b"another")], elsewhere, [], HMAC_KEY).unmatched_entries
    assert unmatched == ("charge key belongs to no order", "shipment a belongs to no order")
