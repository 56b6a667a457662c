"""Full disks and broken database connections: there is no charge without its order in the journal."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.sql import sqlite
from checkout_service.ports import Entry
from shop_kit.fake_peers import FakePeers

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
