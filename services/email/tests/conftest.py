"""An empty spool of either kind."""

from collections.abc import AsyncIterator

import pytest

from email_service.spool.sql import Spool, open_spool


@pytest.fixture
async def spool(database_url: str) -> AsyncIterator[Spool]:
    async with open_spool(database_url) as opened:
        yield opened
