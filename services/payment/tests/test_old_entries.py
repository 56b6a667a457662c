"""Tests of entries that the previous release wrote, with the last four digits of the card and without a key id."""

import hmac
import shutil
from datetime import date
from pathlib import Path

import pytest

from chassis.sql.migrate import migrate
from chassis.sql.url import sqlite_path
from chassis.values.keys import HmacKeys
from payment_service.cards import Brand, Card
from payment_service.domain import ChargeRequest, PaymentProcessor, State
from payment_service.ledger.sql import MIGRATIONS, open_ledger
from shop_kit.databases import execute

KEY = "k" * 32
REQUEST = ChargeRequest("EUR", 12, 340_000_000, Card("4242424242424242", 123, 2030, 11))
CARD_HMAC = hmac.digest(KEY.encode(), b"4242424242424242|2030|11", "sha256")
INSERT = """
    INSERT INTO charges (
        charge_key, state, currency_code, units, nanos, card_hmac, brand, last_four, reason, transaction_id
    ) VALUES ('key', 'CHARGED', 'EUR', 12, 340000000, {card_hmac}, 'visa', '4242', NULL, 'transaction')
"""


def insert_old_entry(url: str) -> None:
    literal = f"x'{CARD_HMAC.hex()}'" if sqlite_path(url) else f"'\\x{CARD_HMAC.hex()}'::bytea"
    execute(url, INSERT.format(card_hmac=literal))


async def charge(url: str) -> State:
    async with open_ledger(url) as ledger:
        processor = PaymentProcessor(
            ledger, HmacKeys.parse(KEY), frozenset(Brand), lambda: date(2026, 11, 21), lambda _reason: None
        )
        return (await processor.charge("key", REQUEST)).state


@pytest.mark.usefixtures("migrations")
@pytest.mark.parametrize("migrations", [None])
async def test_an_old_charge_is_repeatable_and_the_last_four_digits_of_its_card_are_erased(
    database_url: str, tmp_path: Path
) -> None:
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    shutil.copy(MIGRATIONS / "versions" / "0001_charges.py", versions)
    migrate(database_url, versions.parent)
    insert_old_entry(database_url)
    migrate(database_url, MIGRATIONS)
    assert execute(database_url, "SELECT last_four FROM charges") == [(None,)]
    assert await charge(database_url) is State.CHARGED


async def test_an_entry_that_an_old_replica_writes_during_a_rollout_is_repeatable(database_url: str) -> None:
    insert_old_entry(database_url)
    assert await charge(database_url) is State.CHARGED
