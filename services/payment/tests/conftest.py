"""What the payment tests share: an empty ledger of either kind, and a charge that nothing is wrong with."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from chassis import database
from payment_service.cards import Card
from payment_service.domain import ChargeOrder, Ledger
from payment_service.store import MIGRATIONS, open_ledger

GOOD_CARD = Card(number="4242 4242 4242 4242", cvv=123, year=2030, month=11)
GOOD_ORDER = ChargeOrder("EUR", 12, 340_000_000, GOOD_CARD)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/payment.db"
    database.migrate(url, MIGRATIONS)
    return url


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    url = str(request.getfixturevalue("postgres_url"))
    database.migrate(url, MIGRATIONS)
    return url


@pytest.fixture
async def ledger(ledger_url: str) -> AsyncIterator[Ledger]:
    async with open_ledger(ledger_url) as opened:
        yield opened


@pytest.fixture
async def sqlite_ledger(sqlite_url: str) -> AsyncIterator[Ledger]:
    async with open_ledger(sqlite_url) as opened:
        yield opened


@pytest.fixture
def order() -> Callable[..., ChargeOrder]:
    """Makes a charge of 12.34 EUR by a good card, but for the named parts."""

    def make(**changed: Any) -> ChargeOrder:
        card = {name: changed.pop(name) for name in ("number", "cvv", "year", "month") if name in changed}
        return replace(GOOD_ORDER, card=replace(GOOD_CARD, **card), **changed)

    return make


@pytest.fixture
def stored() -> Callable[[str], list[tuple[Any, ...]]]:
    """Reads key, state and units of everything in a ledger's database, past the code that wrote it."""

    def read(url: str) -> list[tuple[Any, ...]]:
        statement = "SELECT charge_key, state, units FROM charges ORDER BY charge_key"
        path = database.sqlite_path(url)
        if path is None:
            with psycopg.connect(url) as connection:
                return connection.execute(statement).fetchall()
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(statement).fetchall()

    return read
