"""Opens the journal that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from chassis import database
from checkout_service.journal import LEASE_SECONDS, Journal
from checkout_service.journal_off import NoJournal
from checkout_service.journal_sql import Database, SqlJournal

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_journal(
    url: str, *, worker: str, keep: bool = True, lease_seconds: float = LEASE_SECONDS
) -> AsyncIterator[Journal]:
    """A SQLite file's journal or a PostgreSQL database's, brought up to date, open within the context.

    Args:
        url: see chassis.database.
        worker: names this replica.
        keep: False keeps nothing, whatever the address.
        lease_seconds: see SqlJournal.
    """
    if not keep:
        yield NoJournal()
        return
    database.migrate(url, MIGRATIONS)
    async with _open_database(url) as opened:
        yield SqlJournal(opened, worker, lease_seconds)


def _open_database(url: str) -> AbstractAsyncContextManager[Database]:
    # Only one of the drivers is worth its time to import.
    path = database.sqlite_path(url)
    if path is not None:
        from checkout_service.journal_sqlite import sqlite_database  # noqa: PLC0415

        return sqlite_database(path)
    from checkout_service.journal_postgres import postgres_database  # noqa: PLC0415

    return postgres_database(database.libpq_url(url))
