"""Opens the spool that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from chassis import database
from email_service.letters import Spool
from email_service.spool.database import Database
from email_service.spool.sql import SqlSpool

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_spool(url: str) -> AsyncIterator[Spool]:
    """Migrate the database and open the spool in it; see chassis.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    async with database.open_store(url, sqlite=_open_sqlite, postgres=_open_postgres) as opened:
        yield SqlSpool(opened)


def _open_sqlite(path: Path) -> AbstractAsyncContextManager[Database]:
    from email_service.spool.sqlite import open_sqlite_database  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_database(path)


def _open_postgres(url: str) -> AbstractAsyncContextManager[Database]:
    from email_service.spool.postgres import open_postgres_database  # noqa: PLC0415 - only one driver is needed

    return open_postgres_database(url)
