"""Bytes on disk that an order of three lines leaves in each store once it is finished, on SQLite and on PostgreSQL.

`python -m shop_lab.bench disk` runs it alone. Indexes are included, empty tables are not. `compact`: after VACUUM, on
PostgreSQL VACUUM FULL. A store in use is between both, because the space of updated and deleted rows is used again.
"""

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import psycopg

from chassis.sql.url import sqlite_path
from shop_cli.local.postgres import Postgres
from shop_kit.smtp_relay import Inbox, relay
from shop_kit.waiting import wait_until
from shop_lab.bench import orders
from shop_lab.bench.rounds import Rows, Spread
from shop_lab.bench.shops import Variant, running

STORES = {"journal": "checkout", "ledger": "payment", "manifest": "shipping", "spool": "email"}
ORDERS = 1_000
SHAPE = orders.Shape(lines=3, in_flight=16, orders=ORDERS)
_POSTGRES_BYTES = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""

Urls = Mapping[str, str]


@asynccontextmanager
async def sqlite_files(folder: Path) -> AsyncIterator[Urls]:
    """Yield a database URL for each service with a store."""
    yield {service: f"sqlite:///{folder}/{service}.db" for service in STORES.values()}


@asynccontextmanager
async def postgres_databases(folder: Path) -> AsyncIterator[Urls]:
    """Run a PostgreSQL server; yield a database URL for each service with a store."""
    async with await Postgres.create(folder / "postgres") as server:
        for service in STORES.values():
            await server.create_database(service)
        yield {service: server.url(service) for service in STORES.values()}


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    path = sqlite_path(url)
    if path is not None:
        with closing(sqlite3.connect(path, timeout=10, isolation_level=None)) as opened:
            return opened.execute(statement).fetchall()
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def sizes(urls: Urls) -> dict[str, int]:
    """Return the bytes of each store, with its indexes."""
    found = {}
    for store, service in STORES.items():
        if sqlite_path(urls[service]) is None:
            ((size,),) = execute(urls[service], _POSTGRES_BYTES)  # a Decimal
            found[store] = int(size)
        else:
            ((pages,),), ((page,),) = (execute(urls[service], f"PRAGMA {name}") for name in ("page_count", "page_size"))
            found[store] = pages * page
    return found


def compact(urls: Urls) -> None:
    for url in urls.values():
        execute(url, "VACUUM FULL" if sqlite_path(url) is None else "VACUUM")


async def place_orders(urls: Urls) -> dict[str, int]:
    """Place the orders and wait until they are finished; return the bytes of each store before."""
    async with relay(Inbox()) as mail_port:
        overrides = {service: {"DATABASE_URL": url} for service, url in urls.items()}
        overrides["email"]["SMTP_URL"] = f"smtp://127.0.0.1:{mail_port}"
        async with running(Variant(), overrides) as running_shop:
            empty = sizes(urls)
            shop = running_shop.shop
            await orders.place(shop, await orders.prepare(shop, SHAPE), SHAPE.in_flight)
            await wait_until(lambda: are_finished(urls))
    return empty


def are_finished(urls: Urls) -> bool:
    done = execute(urls["checkout"], "SELECT count(*) FROM orders WHERE state = 'DONE'")
    sent = execute(urls["email"], "SELECT count(*) FROM letters WHERE state = 'SENT'")
    return done == sent == [(ORDERS,)]


async def measure() -> Rows:
    """Measure both databases; return bytes per order by store, and their sum."""
    rows: dict[str, dict[str, float]] = {store: {} for store in STORES}
    for database, stores in (("sqlite", sqlite_files), ("postgresql", postgres_databases)):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            async with stores(Path(name)) as urls:
                empty = await place_orders(urls)
                written = sizes(urls)
                compact(urls)
                compacted = sizes(urls)
        for store, row in rows.items():
            row[database] = (written[store] - empty[store]) / ORDERS
            row[f"{database}_compact"] = (compacted[store] - empty[store]) / ORDERS
    total = {column: sum(row[column] for row in rows.values()) for column in rows["journal"]}
    return {
        store: {column: Spread.of([value]) for column, value in row.items()}
        for store, row in {**rows, "an order": total}.items()
    }
