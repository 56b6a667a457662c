"""Opens the ledger that DATABASE_URL names."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from chassis import database
from payment_service.domain import Ledger

MIGRATIONS = Path(__file__).parent / "migrations"


def open_ledger(url: str) -> AbstractAsyncContextManager[Ledger]:
    """Migrate the database and open the ledger in it; see chassis.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    return database.open_store(url, sqlite=_open_sqlite, postgres=_open_postgres)


def _open_sqlite(path: Path) -> AbstractAsyncContextManager[Ledger]:
    from payment_service.ledger.sqlite import open_sqlite_ledger  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_ledger(path)


def _open_postgres(url: str) -> AbstractAsyncContextManager[Ledger]:
    from payment_service.ledger.postgres import open_postgres_ledger  # noqa: PLC0415 - only one driver is needed

    return open_postgres_ledger(url)
