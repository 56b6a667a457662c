"""Fixtures of the email tests: an empty spool of either kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from email_service.spool.sql import Spool, open_spool


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/email.db"


@pytest.fixture(params=["sqlite", "postgres"])
def spool_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def spool(spool_url: str) -> AsyncIterator[Spool]:
    async with open_spool(spool_url) as opened:
        yield opened
