"""Full disks, locked files, and database servers that restart."""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from chassis.sql.database import open_database
from chassis.sql.migrate import migrate
from chassis.sql.url import sqlite_path
from chassis.values.money import Money
from payment_service.domain import Entry, Ledger, LedgerUnavailable, Payment, Recorded, State
from payment_service.ledger.sql import MIGRATIONS, SqlLedger, open_ledger
from shop_cli.local.postgres import Postgres

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
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).entry.state is State.CHARGED


async def test_a_rejected_write_fails_alone(sqlite_url: str) -> None:
    async with open_database(sqlite_url, unavailable=LedgerUnavailable) as database:
        ledger = SqlLedger(database)
        batch = (ledger.record(Entry("key", State.CHARGED, PAYMENT)), database.write(("nonsense", {})))
        results = await asyncio.gather(*batch, return_exceptions=True)
        assert [type(result) for result in results] == [Recorded, LedgerUnavailable]
        assert await ledger.find("key") is not None


@pytest.fixture
async def server() -> AsyncIterator[Postgres]:
    """A PostgreSQL server for one test, which kills and starts it."""
    with tempfile.TemporaryDirectory(prefix="shop-restarts-", ignore_cleanup_errors=True) as folder:
        async with await Postgres.create(Path(folder) / "server") as running:
            migrate(running.url("postgres"), MIGRATIONS)
            yield running


async def test_a_charge_waits_for_a_restarting_database(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may need longer to start a server.
    monkeypatch.setattr("chassis.sql.postgres.ANSWER_WITHIN_SECONDS", 60)
    async with open_ledger(server.url("postgres")) as ledger:
        await ledger.record(Entry("before", State.CHARGED, PAYMENT))
        server.kill()
        await server.wait()
        recording = asyncio.create_task(ledger.record(Entry("during", State.CHARGED, PAYMENT)))
        await server.start()
        assert (await recording).entry.state is State.CHARGED
        assert (await ledger.find("before")) is not None
        await ledger.check()


async def test_a_stopped_database_is_unavailable_until_it_starts_again(server: Postgres) -> None:
    async with open_ledger(server.url("postgres")) as ledger:
        server.kill()
        started = time.monotonic()
        with pytest.raises(LedgerUnavailable):
            await ledger.check()
        with pytest.raises(LedgerUnavailable):
            await ledger.record(Entry("key", State.CHARGED, PAYMENT))
        assert time.monotonic() - started < 30
        await server.start()
        await server.wait_until_serving()
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).entry.state is State.CHARGED


async def test_connections_closed_by_the_server_are_replaced(postgres_url: str) -> None:
    migrate(postgres_url, MIGRATIONS)
    async with open_ledger(postgres_url) as ledger:
        await asyncio.gather(*(ledger.find(str(number)) for number in range(16)))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        entries = [Entry(str(number), State.CHARGED, PAYMENT) for number in range(16)]
        assert [recorded.entry for recorded in await asyncio.gather(*map(ledger.record, entries))] == entries
