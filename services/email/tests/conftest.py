"""Fixtures of the email tests: an empty spool on SQLite and on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from email_service.spool.sql import Spool, open_spool


@pytest.fixture
async def spool(database_url: str) -> AsyncIterator[Spool]:
    async with open_spool(database_url) as opened:
        yield opened
