"""Opens the spool that DATABASE_URL names."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from chassis.sql import database
from chassis.telemetry.instruments import Telemetry
from email_service.spool.database import Database
from email_service.spool.sql import Spool

MIGRATIONS = Path(__file__).parent / "migrations"


@asynccontextmanager
async def open_spool(url: str, telemetry: Telemetry | None = None) -> AsyncIterator[Spool]:
    """Migrate the database and open the spool in it; see chassis.sql.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    telemetry = telemetry or Telemetry()
    opening = database.open_store(
        url, sqlite=partial(_open_sqlite, telemetry), postgres=partial(_open_postgres, telemetry)
    )
    async with opening as opened:
        yield Spool(opened)


def _open_sqlite(telemetry: Telemetry, path: Path) -> AbstractAsyncContextManager[Database]:
    from email_service.spool.sqlite import open_sqlite_database  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_database(path, telemetry)


def _open_postgres(telemetry: Telemetry, url: str) -> AbstractAsyncContextManager[Database]:
    from email_service.spool.postgres import open_postgres_database  # noqa: PLC0415 - only one driver is needed

    return open_postgres_database(url, telemetry)
