"""Opens the journal that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from chassis import database
from checkout_service.journal.database import Database
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import LEASE_SECONDS, Journal

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_journal(url: str, *, worker: str, lease_seconds: float = LEASE_SECONDS) -> AsyncIterator[Journal]:
    """Migrate the database and open the journal in it.

    Args:
        url: see chassis.database.
        worker: name of this replica.
        lease_seconds: see SqlJournal.
    """
    database.migrate(url, MIGRATIONS)
    async with database.open_store(url, sqlite=_open_sqlite, postgres=_open_postgres) as opened:
        yield SqlJournal(opened, worker, lease_seconds)


def _open_sqlite(path: Path) -> AbstractAsyncContextManager[Database]:
    from checkout_service.journal.sqlite import open_sqlite_database  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_database(path)


def _open_postgres(url: str) -> AbstractAsyncContextManager[Database]:
    from checkout_service.journal.postgres import open_postgres_database  # noqa: PLC0415 - only one driver is needed

    return open_postgres_database(url)
