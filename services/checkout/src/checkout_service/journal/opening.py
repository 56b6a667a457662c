"""Opens the journal in the database at DATABASE_URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chassis.sql.migrate import migrate
from chassis.sql.opening import open_database
from chassis.telemetry.instruments import Telemetry
from checkout_service.journal.sql import Journal
from checkout_service.ports import LEASE_SECONDS, JournalUnavailable

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_journal(
    url: str, telemetry: Telemetry | None = None, *, worker: str, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[Journal]:
    """Migrate the database and open its journal. See chassis.sql.url for the URL formats."""
    migrate(url, MIGRATIONS)
    async with open_database(url, telemetry, unavailable=JournalUnavailable) as opened:
        yield Journal(opened, worker, lease_seconds)
