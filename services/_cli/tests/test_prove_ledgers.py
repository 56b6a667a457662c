"""The ledgers of payment, shipping and email, as they are on disk."""

import json
import sqlite3
from contextlib import closing
from email.message import EmailMessage
from pathlib import Path

import pytest

from chassis.money import Money
from shop_cli.prove.evidence import Shipment
from shop_cli.prove.ledgers import Charge, card_hmac, join, read_charges, read_manifest, read_outbox
from shop_cli.prove.plan import Line, plain

HMAC_KEY = b"key" * 16
INTENT = plain(5, "customer-5", [Line("mug", 1)], "key")
EUROS = Money.of("EUR", 5)


def manifest_line(tracking_id: str, street: str = INTENT.street) -> str:
    return json.dumps(
        {"tracking_id": tracking_id, "street_address": street, "items": [{"product_id": "mug", "quantity": 1}]}
    )


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return tmp_path / "shipments.jsonl"


@pytest.fixture
def outbox(tmp_path: Path) -> Path:
    (tmp_path / "outbox").mkdir()
    return tmp_path / "outbox"


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


def test_a_shipment_written_down_twice_is_one(manifest: Path) -> None:
    manifest.write_text(f"{manifest_line('a')}\n{manifest_line('a')}\n{manifest_line('b')}\n")
    assert [shipment.tracking_id for _, shipment in read_manifest(manifest)] == ["a", "b"]


def test_a_line_that_a_crash_tore_is_no_shipment(manifest: Path) -> None:
    manifest.write_text(f"{manifest_line('a')[:20]}\n{manifest_line('b')}\n")
    assert [shipment.tracking_id for _, shipment in read_manifest(manifest)] == ["b"]


def test_a_mail_tells_its_order_its_recipient_and_its_words(outbox: Path) -> None:
    message = EmailMessage()
    message["To"], message["Message-ID"] = "a@example.com", "<order@shop>"
    message.set_content("two\n  words\n")
    (outbox / "order.eml").write_bytes(bytes(message))
    (mail,) = read_outbox(outbox)
    assert (mail.order_id, mail.recipient, mail.text) == ("order", "a@example.com", "two words")


def test_entries_are_joined_by_card_street_and_recipient(manifest: Path, outbox: Path) -> None:
    manifest.write_text(f"{manifest_line('a')}\n")
    ledgers = join([INTENT], [charge()], manifest, outbox, HMAC_KEY)
    assert ledgers.charges == {5: (EUROS,)}
    assert ledgers.shipments == {5: (Shipment("a", {"mug": 1}),)}
    assert ledgers.strangers == ()


@pytest.mark.parametrize("state", ["VOIDED", "DECLINED"])
def test_a_charge_that_was_not_captured_does_not_count(manifest: Path, outbox: Path, state: str) -> None:
    assert join([INTENT], [charge(state)], manifest, outbox, HMAC_KEY).charges == {}


def test_entries_that_belong_to_no_order_are_told(manifest: Path, outbox: Path) -> None:
    manifest.write_text(f"{manifest_line('a', street='elsewhere')}\n")
    strangers = join([INTENT], [charge(card=b"another")], manifest, outbox, HMAC_KEY).strangers
    assert strangers == ("charge key belongs to no order", "shipment a belongs to no order")
