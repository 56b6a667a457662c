"""Full disks and locked files."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chassis.sql.database import open_database
from chassis.sql.migrate import migrate
from chassis.sql.url import sqlite_path
from chassis.values.money import Money
from payment_service.domain import Entry, Ledger, LedgerUnavailable, Payment, State
from payment_service.ledger.sql import MIGRATIONS, SqlLedger, open_ledger

PAYMENT = Payment(Money.of("EUR", 12), b"h" * 32, "0a1b2c3d", "visa")


async def test_a_full_disk_refuses_charges_and_loses_none(
    sqlite_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    path = file_of(sqlite_url)
    migrate(sqlite_url, MIGRATIONS)
    async with open_database(sqlite_url, unavailable=LedgerUnavailable) as database:
        ledger = SqlLedger(database)
        ((row,),) = await database.write(("PRAGMA page_count", {}))
        await database.write((f"PRAGMA max_page_count = {row['page_count'] + 2}", {}))
        recorded = await record_until_full(ledger)
        await database.write(("PRAGMA max_page_count = 1000000", {}))
        await ledger.record(Entry("when the disk has space", State.CHARGED, PAYMENT))
    assert [key for key, _, _ in stored(sqlite_url)] == [*recorded, "when the disk has space"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def record_until_full(ledger: Ledger) -> list[str]:
    """Record charges until the disk is full; return the keys of the recorded ones."""
    recorded: list[str] = []
    while len(recorded) < 1000:
        key = f"key-{len(recorded):03}"
        try:
            await ledger.record(Entry(key, State.CHARGED, PAYMENT))
        except LedgerUnavailable:
            return recorded
        recorded.append(key)
    pytest.fail("the disk was never full")


def file_of(url: str) -> Path:
    path = sqlite_path(url)
    assert path is not None
    return path


async def test_a_file_locked_by_another_process_is_unavailable(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chassis.sql.sqlite.ANSWER_WITHIN_SECONDS", 0.1)
    async with open_ledger(sqlite_url) as ledger:
        with closing(sqlite3.connect(file_of(sqlite_url), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable):
                await ledger.record(Entry("key", State.CHARGED, PAYMENT))
            other.execute("ROLLBACK")
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).state is State.CHARGED
