"""Fixtures of the payment tests: an empty ledger on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from payment_service.ledger.sql import SqlLedger, open_ledger


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[SqlLedger]:
    async with open_ledger(database_url) as opened:
        yield opened


@pytest.fixture
async def sqlite_ledger(sqlite_url: str) -> AsyncIterator[SqlLedger]:
    async with open_ledger(sqlite_url) as opened:
        yield opened
