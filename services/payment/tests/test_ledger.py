"""Tests of the ledger, which run on both SQLite and PostgreSQL, also of entries that an earlier release wrote."""

import asyncio
import hmac
import shutil
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from chassis.sql.database import listed
from chassis.sql.migrate import migrate
from chassis.sql.url import sqlite_path
from chassis.values.keys import HmacKeys
from chassis.values.money import MAX_NANOS, MAX_UNITS, Money
from chassis.values.orders import Card
from chassis.values.paging import Position
from payment_service.cards import Brand, Decline
from payment_service.domain import CartOrdered, ChargeRequest, Entry, Payment, PaymentProcessor, State
from payment_service.ledger.sql import MIGRATIONS, SqlLedger, open_ledger
from shop_kit.databases import execute

PAYMENT = Payment(Money.of("EUR", 12, 340_000_000), b"\x00\xff" * 16, "0a1b2c3d", Brand.VISA)
CHARGE = Entry("key", State.CHARGED, PAYMENT)


async def recorded(ledger: SqlLedger, entry: Entry) -> tuple[Entry, bool]:
    found = await ledger.record(entry)
    return found, found.existing


async def test_entries_are_read_back_as_recorded_also_after_a_restart(database_url: str) -> None:
    entries = [
        CHARGE,
        Entry("declined", State.DECLINED, replace(PAYMENT, brand=None), Decline.BRAND_NOT_ACCEPTED),
        Entry("fenced", State.FENCED),
        Entry("for a request", State.CHARGED, replace(PAYMENT, request_fingerprint="f" * 64, purchase_id="p" * 64)),
        Entry("k" * 255, State.CHARGED, replace(PAYMENT, amount=Money.of("JPY", MAX_UNITS, MAX_NANOS))),
    ]
    voided = Entry("voided", State.CHARGED, PAYMENT)
    async with open_ledger(database_url) as ledger:
        for entry in (*entries, voided):
            assert await recorded(ledger, entry) == (entry, False)
            assert await ledger.find(entry.key) == entry
        await ledger.void("voided")
    async with open_ledger(database_url) as ledger:
        assert [await ledger.find(entry.key) for entry in entries] == entries
        assert await ledger.find("voided") == replace(voided, state=State.VOIDED)


async def test_a_purchase_has_one_captured_charge(ledger: SqlLedger) -> None:
    first, second, declined = (
        Entry(key, State.CHARGED, replace(PAYMENT, purchase_id="cart")) for key in ("first", "second", "declined")
    )
    await ledger.record(replace(declined, state=State.DECLINED, reason=Decline.CARD_EXPIRED))
    raced = await asyncio.gather(ledger.record(first), ledger.record(second), return_exceptions=True)
    assert sum(isinstance(one, CartOrdered) for one in raced) == 1
    (charged,) = (one for one in raced if isinstance(one, Entry))
    assert await recorded(ledger, charged) == (charged, True)
    await ledger.void(charged.key)
    other = second if charged == first else first
    assert await recorded(ledger, other) == (other, False)


async def test_captured_charges_are_listed_from_a_position_or_the_time_on_at_which_they_were_recorded(
    ledger: SqlLedger,
) -> None:
    now = time.time()
    for key in ("b", "a", "voided", "c"):
        await ledger.record(replace(CHARGE, key=key))
    await ledger.record(Entry("fenced", State.FENCED))
    await ledger.record(Entry("declined", State.DECLINED, PAYMENT, Decline.CARD_EXPIRED))
    await ledger.void("voided")
    charges = await ledger.scan(Position(0), 10)
    assert sorted((charge.key, charge.payment) for charge in charges) == [(key, PAYMENT) for key in "abc"]
    paged = [
        charge
        for start in (Position(0), *(charge.position for charge in charges[:2]))
        for charge in await ledger.scan(start, 1)
    ]
    assert paged == charges
    assert await ledger.scan(charges[-1].position, 10) == []
    assert [charge.recorded_at for charge in charges] == [pytest.approx(now, abs=300)] * 3
    assert await ledger.scan(Position(now - 300), 10) == charges
    assert await ledger.scan(Position(now + 300), 10) == []


async def test_the_charges_of_orders_are_listed_even_if_they_cannot_be_decoded(database_url: str) -> None:
    keys = ["id", "id:1", "id:20", "id-2:1", "id2:1", "ic:9"]
    async with open_ledger(database_url) as ledger:
        for key in keys:
            await ledger.record(replace(CHARGE, key=key))
        execute(database_url, "UPDATE charges SET units = NULL WHERE charge_key IN ('id:20', 'id2:1')")
        listed = await ledger.list_of_orders(["id", "id-2"])
        assert [entry for entry in await ledger.scan(Position(0), 10) if entry.key in keys[:4]] == listed
    assert {entry.key: entry.payment for entry in listed} == dict.fromkeys(keys[:4], PAYMENT) | {"id:20": None}


async def test_the_charges_of_orders_are_found_by_an_index_before_there_are_statistics(postgres_url: str) -> None:
    async with open_ledger(postgres_url) as ledger:
        text, parameters = f"EXPLAIN {ledger._list_of_orders}", {"items": listed([{"id": "id"}])}
        plan = str(await ledger._database.read(text, parameters))
    assert ("Index Scan" in plan, "Seq Scan" in plan) == (True, False)


@pytest.mark.parametrize("round_number", range(2))
async def test_of_a_concurrent_charge_and_fence_exactly_one_wins(database_url: str, round_number: int) -> None:
    """Two replicas write at the same time, and take turns at writing first."""
    keys = [f"key-{number}" for number in range(20)]
    charges = [Entry(key, State.CHARGED, PAYMENT) for key in keys]
    fences = [Entry(key, State.FENCED) for key in keys]
    async with open_ledger(database_url) as one, open_ledger(database_url) as other:
        writes = [(one, charges), (other, fences)]
        if round_number % 2:
            writes.reverse()
        raced = await asyncio.gather(*(ledger.record(entry) for ledger, entries in writes for entry in entries))
        stored = [await one.find(key) for key in keys]
    assert raced == stored * 2
    assert all(charge.existing != fence.existing for charge, fence in zip(raced[:20], raced[20:], strict=True))


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
