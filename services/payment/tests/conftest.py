"""Fixtures of the payment tests: an empty ledger of either kind."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from payment_service.domain import Ledger
from payment_service.ledger.sql import MIGRATIONS, open_ledger
from shop_kit.databases import execute


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
def stored() -> Callable[[str], list[tuple[Any, ...]]]:
    """Read key, state and units of every entry straight from the database."""

    def read(url: str) -> list[tuple[Any, ...]]:
        return execute(url, "SELECT charge_key, state, units FROM charges ORDER BY charge_key")

    return read
