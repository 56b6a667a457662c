"""Opens the journal that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chassis import database
from checkout_service.journal import LEASE_SECONDS, Journal
from checkout_service.journal_off import NoJournal
from checkout_service.journal_sql import SqlJournal

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
        lease_seconds: how long an order is left to the worker that serves its caller.
    """
    if not keep:
        yield NoJournal()
        return
    database.migrate(url, MIGRATIONS)
    # Only one of the drivers is worth its time to import.
    path = database.sqlite_path(url)
    if path is not None:
        from checkout_service.journal_sqlite import sqlite_database  # noqa: PLC0415

        async with sqlite_database(path) as opened:
            yield SqlJournal(opened, worker, lease_seconds)
        return
    from checkout_service.journal_postgres import postgres_database  # noqa: PLC0415

    async with postgres_database(database.libpq_url(url)) as opened_server:
        yield SqlJournal(opened_server, worker, lease_seconds)
