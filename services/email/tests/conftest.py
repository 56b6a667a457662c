"""Fixtures of the email tests: an empty spool on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from email_service.spool.sql import MIGRATIONS, Spool, open_spool


@pytest.fixture(scope="session")
def migrations() -> Path:
    return MIGRATIONS


@pytest.fixture
async def spool(database_url: str) -> AsyncIterator[Spool]:
    async with open_spool(database_url) as opened:
        yield opened
