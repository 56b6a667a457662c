# ruff: noqa: S608 - the SQL is built only from constants
"""Stores carts in PostgreSQL, which all replicas share, or in a SQLite file. Carts survive restarts of the service.

Each change reads the cart and writes it back. If another change was written in between, the change starts over.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import orjson

from cart_service.domain import (
    ANONYMOUS_TTL_SECONDS,
    KEY_TTL_SECONDS,
    Addition,
    Cart,
    CartStore,
    NewQuantity,
    Purchase,
    StoreUnavailable,
)
from chassis.background import in_background, repeat
from chassis.errors import IdempotencyKeyReused
from chassis.sql.database import NOW, Database, Row
from chassis.sql.opening import open_database
from chassis.sql.retention import read_clock
from chassis.telemetry.instruments import Telemetry

MIGRATIONS = Path(__file__).parent / "migrations"

MAX_ANONYMOUS = 150_000
"""The maximum number of anonymous carts. Beyond this, `clean` evicts the least recently changed carts."""

_CHECK_WITHIN_SECONDS = 1
_CLEANING_SECONDS = 60.0
_DELETED_AT_ONCE = 500
# How long to keep the rows of removed carts, and the random keys of additions without an idempotency key. Must be
# longer than the database client keeps retrying a transaction whose response was lost.
_REPEATED_WITHIN_SECONDS = 60.0

FIND = """
    SELECT carts.version, carts.etag, carts.quantities, carts.anonymous, cart_keys.added
    FROM (SELECT CAST(:user_id AS TEXT) AS user_id) AS wanted
    LEFT JOIN carts ON carts.user_id = wanted.user_id
    LEFT JOIN cart_keys ON cart_keys.user_id = wanted.user_id AND cart_keys.cart_key = :key
"""

CREATE = f"""
    INSERT INTO carts (user_id, version, etag, quantities, anonymous, ends_at)
    VALUES (:user_id, 1, :etag, :quantities, :anonymous, {NOW} + :ttl_seconds)
    ON CONFLICT DO NOTHING RETURNING version
"""

UPDATE = f"""
    UPDATE carts SET version = version + 1, etag = :etag, quantities = :quantities, anonymous = :anonymous,
        ends_at = {NOW} + :ttl_seconds
    WHERE user_id = :user_id AND version = :version RETURNING version
"""

# Record the key only if this addition, or an earlier attempt at it, has stored its unique etag in the cart.
RECORD_KEY = f"""
    INSERT INTO cart_keys (user_id, cart_key, added, ends_at)
    SELECT user_id, :key, :added, {NOW} + :key_ttl_seconds
    FROM carts WHERE user_id = :user_id AND etag = :etag ON CONFLICT DO NOTHING
"""


def _deletion(table: str, key: str, condition: str, rows: str) -> str:
    """Return SQL that deletes a batch of rows. It checks the condition twice, to keep rows that change in between."""
    chosen = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY ends_at {rows}"
    return f"DELETE FROM {table} WHERE {condition} AND ({key}) IN ({chosen}) RETURNING user_id"


_ENDED = "ends_at < :now"

DELETIONS = (
    _deletion("carts", "user_id", _ENDED, "LIMIT :limit"),
    _deletion("cart_keys", "user_id, cart_key", _ENDED, "LIMIT :limit"),
    _deletion("carts", "user_id", "anonymous", "DESC LIMIT :limit OFFSET :kept"),
)


@asynccontextmanager
async def open_sql_store(
    url: str, ttl_seconds: float, telemetry: Telemetry | None = None
) -> AsyncIterator["SqlCartStore"]:
    """Open a store in a migrated database, and delete expired carts and keys in the background."""
    async with open_database(url, telemetry, unavailable=StoreUnavailable) as database:
        store = SqlCartStore(database, ttl_seconds)
        async with in_background(partial(repeat, store.clean, _CLEANING_SECONDS, "old carts cannot be deleted")):
            yield store


class SqlCartStore(CartStore):
    """Stores each cart as a row. `ttl_seconds` is how long a customer's cart is kept after its last change."""

    def __init__(self, database: Database, ttl_seconds: float) -> None:
        self._database = database
        self._ttl_seconds = ttl_seconds
        # One lock per cart, so that concurrent changes to a cart take turns instead of making each other start over.
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def add(self, addition: Addition) -> bool:
        ttl_seconds = ANONYMOUS_TTL_SECONDS if addition.anonymous else KEY_TTL_SECONDS
        key = {
            "key": addition.key or secrets.token_hex(16),
            "added": f"{addition.quantity} {addition.product_id}",
            "key_ttl_seconds": ttl_seconds if addition.key else _REPEATED_WITHIN_SECONDS,
        }
        return await self._change(addition.user_id, lambda cart: cart.add(addition), key)

    async def read(self, user_id: str) -> Cart:
        return _cart(await self._find(user_id))

    async def empty(self, user_id: str, if_match: str | None) -> None:
        await self._change(user_id, lambda cart: cart.empty(if_match))

    async def set_quantity(self, new: NewQuantity) -> None:
        await self._change(new.user_id, lambda cart: cart.set_quantity(new))

    async def remove_ordered(self, purchase: Purchase) -> None:
        await self._change(purchase.user_id, lambda cart: cart.remove_ordered(purchase))

    async def check(self) -> None:
        await self._find("", within_seconds=_CHECK_WITHIN_SECONDS)

    async def clean(self) -> None:
        """Delete expired carts and keys unless the clock has jumped, and anonymous carts beyond MAX_ANONYMOUS."""
        now = await read_clock(self._database) or 0.0
        parameters = {"limit": _DELETED_AT_ONCE, "kept": MAX_ANONYMOUS, "now": now}
        for statement in DELETIONS:
            while (await self._database.write((statement, parameters)))[0]:
                pass

    async def _find(self, user_id: str, key: str = "", *, within_seconds: float | None = None) -> Row:
        parameters = {"user_id": user_id, "key": key}
        (row,) = await self._database.read(FIND, parameters, within_seconds=within_seconds)
        return row

    async def _change(self, user_id: str, change: Callable[[Cart], Cart], key: Mapping[str, Any] | None = None) -> bool:
        """Change a cart. Return False if the idempotency key is stored, perhaps by a write whose response was lost."""
        async with self._locks.setdefault(user_id, asyncio.Lock()):
            while True:
                row = await self._find(user_id, key["key"] if key else "")
                if key and row["added"]:
                    if row["added"] != key["added"]:
                        raise IdempotencyKeyReused
                    return False
                before = _cart(row)
                after = change(before)
                if after is before or await self._write(user_id, row["version"], after, key):
                    return True

    async def _write(self, user_id: str, version: int | None, after: Cart, key: Mapping[str, Any] | None) -> bool:
        """Write the cart and any idempotency key. If the cart's version has changed, write nothing and return False."""
        lives = ANONYMOUS_TTL_SECONDS if after.anonymous else self._ttl_seconds
        parameters = {
            "user_id": user_id,
            "version": version,
            "etag": after.etag,
            "quantities": orjson.dumps(after.quantities).decode(),
            "anonymous": after.anonymous,
            "ttl_seconds": lives if after.etag else _REPEATED_WITHIN_SECONDS,
            **(key or {}),
        }
        batch = [CREATE if version is None else UPDATE, *([RECORD_KEY] if key else [])]
        written, *_ = await self._database.write(*((statement, parameters) for statement in batch))
        return bool(written)


def _cart(row: Row) -> Cart:
    if row["version"] is None:
        return Cart()
    return Cart(orjson.loads(row["quantities"]), row["etag"], bool(row["anonymous"]))
