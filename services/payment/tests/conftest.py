"""Fixtures of the payment tests: an empty ledger of either kind, and a valid request."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from payment_service.cards import Card
from payment_service.domain import ChargeRequest, Ledger
from payment_service.ledger.sql import MIGRATIONS, open_ledger
from shop_kit.databases import execute

VALID_CARD = Card(number="4242 4242 4242 4242", cvv=123, year=2030, month=11)
VALID_REQUEST = ChargeRequest("EUR", 12, 340_000_000, VALID_CARD)


@pytest.fixture(scope="session")
def migrations() -> Path:
    return MIGRATIONS


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    async with open_ledger(database_url) as opened:
        yield opened


@pytest.fixture
async def sqlite_ledger(sqlite_url: str) -> AsyncIterator[Ledger]:
    async with open_ledger(sqlite_url) as opened:
        yield opened


@pytest.fixture
def make_request() -> Callable[..., ChargeRequest]:
    """Make a request to charge 12.34 EUR to a valid card, with the given fields changed."""

    def make(**changed: Any) -> ChargeRequest:
        card = {name: changed.pop(name) for name in ("number", "cvv", "year", "month") if name in changed}
        return replace(VALID_REQUEST, card=replace(VALID_CARD, **card), **changed)

    return make


@pytest.fixture
def stored() -> Callable[[str], list[tuple[Any, ...]]]:
    """Read key, state and units of every entry straight from the database."""

    def read(url: str) -> list[tuple[Any, ...]]:
        return execute(url, "SELECT charge_key, state, units FROM charges ORDER BY charge_key")

    return read
