"""Opens the journal that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from chassis.sql import database
from chassis.telemetry.instruments import Telemetry
from checkout_service.journal.database import Database
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import LEASE_SECONDS, Journal

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_journal(
    url: str, telemetry: Telemetry | None = None, *, worker: str, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[Journal]:
    """Migrate the database and open the journal in it.

    Args:
        url: see chassis.sql.database.
        telemetry: records statements and flushes; by default nothing.
        worker: name of this replica.
        lease_seconds: see SqlJournal.
    """
    database.migrate(url, MIGRATIONS)
    telemetry = telemetry or Telemetry()
    opening = database.open_store(
        url, sqlite=partial(_open_sqlite, telemetry), postgres=partial(_open_postgres, telemetry)
    )
    async with opening as opened:
        yield SqlJournal(opened, worker, lease_seconds)


def _open_sqlite(telemetry: Telemetry, path: Path) -> AbstractAsyncContextManager[Database]:
    from checkout_service.journal.sqlite import open_sqlite_database  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_database(path, telemetry)


def _open_postgres(telemetry: Telemetry, url: str) -> AbstractAsyncContextManager[Database]:
    from checkout_service.journal.postgres import open_postgres_database  # noqa: PLC0415 - only one driver is needed

    return open_postgres_database(url, telemetry)
