"""Opens the ledger that DATABASE_URL names."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from chassis.sql import database
from chassis.telemetry.instruments import Telemetry
from payment_service.domain import Ledger

MIGRATIONS = Path(__file__).parent / "migrations"


def open_ledger(url: str, telemetry: Telemetry | None = None) -> AbstractAsyncContextManager[Ledger]:
    """Migrate the database and open the ledger in it; see chassis.sql.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    telemetry = telemetry or Telemetry()
    return database.open_store(
        url, sqlite=partial(_open_sqlite, telemetry), postgres=partial(_open_postgres, telemetry)
    )


def _open_sqlite(telemetry: Telemetry, path: Path) -> AbstractAsyncContextManager[Ledger]:
    from payment_service.ledger.sqlite import open_sqlite_ledger  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_ledger(path, telemetry)


def _open_postgres(telemetry: Telemetry, url: str) -> AbstractAsyncContextManager[Ledger]:
    from payment_service.ledger.postgres import open_postgres_ledger  # noqa: PLC0415 - only one driver is needed

    return open_postgres_ledger(url, telemetry)
