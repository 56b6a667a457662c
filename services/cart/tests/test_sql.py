"""Tests of what only SQL stores have: lost replies to commits, and rows that the service itself must delete."""

import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from cart_service import sql
from cart_service.__main__ import Settings, open_store
from cart_service.domain import Addition, CartStore, NewQuantity, Purchase, StoreUnavailable
from cart_service.sql import SqlCartStore, open_sql_store
from chassis.settings import load
from chassis.sql.database import Row, Statement
from chassis.sql.opening import open_database
from chassis.telemetry.instruments import Telemetry
from chassis.values.orders import Item
from shop_kit.databases import execute

TENT = Addition("ada", "tent", 1)


async def quantities(store: CartStore, user_id: str = "ada") -> dict[str, int]:
    return {line.product_id: line.quantity for line in (await store.read(user_id)).lines}


@pytest.mark.parametrize("before", [{}, {"pan": 5}])
@pytest.mark.parametrize(
    ("meanwhile", "after"),
    [
        (lambda store: store.check(), {"pan": 1}),
        (lambda store: store.add(TENT), {"pan": 1, "tent": 1}),
        (lambda store: store.set_quantity(NewQuantity("ada", "pan", 9)), {"pan": 9}),
        (lambda store: store.empty("ada", None), {}),
    ],
    ids=["nothing", "added", "changed", "emptied"],
)
async def test_an_addition_whose_reply_is_lost_takes_effect_once(
    database_url: str,
    before: dict[str, int],
    meanwhile: Callable[[CartStore], Awaitable[object]],
    after: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_database(database_url, unavailable=StoreUnavailable) as database:
        store, other, write = SqlCartStore(database, 3600), SqlCartStore(database, 3600), database.write
        for product_id, quantity in before.items():
            await other.add(Addition("ada", product_id, quantity))

        async def write_twice(*batch: Statement) -> Sequence[Sequence[Row]]:
            """Write the first transaction twice, as if its reply was lost, and call `meanwhile` in between."""
            monkeypatch.setattr(database, "write", write)
            await write(*batch)
            await meanwhile(other)
            return await write(*batch)

        monkeypatch.setattr(database, "write", write_twice)
        await store.add(Addition("ada", "pan", 1))
        expected = {**after, "pan": 6} if before and after.get("pan") == 1 else after
        assert await quantities(other) == expected


def let_time_pass(url: str, seconds: int) -> None:
    for table in ("carts", "cart_keys"):
        execute(url, f"UPDATE {table} SET ends_at = ends_at - {seconds}")  # noqa: S608 - constants


async def test_carts_and_keys_are_deleted_when_they_have_ended(database_url: str) -> None:
    async with open_sql_store(database_url, ttl_seconds=100_000) as store:
        for user_id in ("customer", "ordered", "nobody"):
            await store.add(Addition(user_id, "pan", 2, "k", anonymous=user_id != "customer"))
            await store.set_quantity(NewQuantity(user_id, "pan", 3))
        await store.remove_ordered(Purchase("ordered", (await store.read("ordered")).etag, (Item("pan", 1),)))
        let_time_pass(database_url, 12 * 3600 + 1)
        execute(database_url, "UPDATE retention SET seen_at = 0")
        await store.clean()
        assert await quantities(store, "nobody") == {"pan": 3}  # the clock may have jumped
        execute(database_url, "UPDATE retention SET steady_since = 0")
        await store.clean()
        found = execute(database_url, "SELECT user_id FROM carts ORDER BY user_id")
        assert found == [("customer",), ("ordered",)]
        assert execute(database_url, "SELECT user_id FROM cart_keys") == [("customer",)]
        await store.add(Addition("nobody", "tent", 1, "k", anonymous=True))
        assert await quantities(store, "nobody") == {"tent": 1}


async def test_an_emptied_cart_is_deleted(database_url: str) -> None:
    async with open_sql_store(database_url, ttl_seconds=100_000) as store:
        await store.add(TENT)
        await store.empty("ada", None)
        let_time_pass(database_url, 61)
        await store.clean()
    assert execute(database_url, "SELECT user_id FROM carts UNION SELECT user_id FROM cart_keys") == []


async def test_of_too_many_anonymous_carts_the_oldest_go(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MAX_ANONYMOUS", 2)
    async with open_sql_store(database_url, ttl_seconds=100_000) as store:
        await store.add(TENT)
        for number in range(5):
            await store.add(Addition(f"nobody-{number}", "pan", 1, anonymous=True))
        await store.clean()
    found = execute(database_url, "SELECT user_id FROM carts ORDER BY user_id")
    assert found == [("ada",), ("nobody-3",), ("nobody-4",)]


@pytest.mark.parametrize("url", ["", "sqlite:///carts.db"])
def test_a_migration_makes_the_database_that_is_set(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cart_service", "migrate"]
    subprocess.run(command, env={"DATABASE_URL": url}, cwd=tmp_path, check=True)
    assert [file.name for file in tmp_path.iterdir()] == (["carts.db"] if url else [])


def test_a_database_and_a_valkey_are_refused() -> None:
    both = load(Settings, {"DATABASE_URL": "sqlite:///carts.db", "REDIS_URL": "redis://valkey"})
    with pytest.raises(OSError, match="REDIS_URL: DATABASE_URL is set, too"):
        open_store(both, Telemetry())
