"""Full disks and broken database connections: there is no charge without its order in the journal."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from chassis.errors import Unavailable
from chassis.sql import sqlite
from checkout_service.journal.opening import open_journal
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import Entry, JournalUnavailable
from shop_lab.world.fake_peers import FakePeers

Start = Callable[..., Any]
Make = Callable[..., Entry]


@pytest.fixture
def _small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit databases to a few orders."""
    connect = sqlite.connect

    def limited(path: Path, *, query_only: bool = False) -> sqlite3.Connection:
        connection = connect(path, query_only=query_only)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    monkeypatch.setattr(sqlite, "connect", limited)


@pytest.mark.usefixtures("_small_disk")
async def test_a_full_disk_refuses_orders_before_any_effect(peers: FakePeers, start: Start, database_url: str) -> None:
    placed = 0
    async with start() as checkout:
        with pytest.raises(grpc.aio.AioRpcError) as error:  # noqa: PT012 - any of them may fail first
            while placed < 500:
                peers.cart.fill("ann", mug=1)
                await checkout.place(f"key-{placed}")
                placed += 1
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        peers.cart.fill("ann", mug=1)
        await checkout.refused("one more")
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        known = {f"{row[0]}:1" for row in connection.execute("SELECT order_id FROM orders")}
    assert placed > 0
    assert set(peers.payment.captured) <= known


async def test_connections_that_break_during_inserts_lose_no_order(postgres_url: str, new_order: Make) -> None:
    async with open_journal(postgres_url, worker="one") as journal:

        async def break_three_times() -> None:
            for _ in range(3):
                await asyncio.to_thread(break_connections, postgres_url)

        new = [new_order(f"scope-{number}") for number in range(30)]
        *results, _ = await asyncio.gather(*(journal.insert(each) for each in new), break_three_times())
        assert results == [None] * 30
        assert all([await journal.find(each.scope) for each in new])


def break_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_an_order_that_cannot_be_recorded_is_not_charged(
    peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_self: SqlJournal, _new: Entry) -> None:
        raise JournalUnavailable("down")

    monkeypatch.setattr(SqlJournal, "insert", fail)
    async with start() as checkout:
        error = await checkout.refused()
    assert (type(error), error.reason) == (Unavailable, "JOURNAL_UNAVAILABLE")
    assert peers.payment.calls["Charge"] == 0
