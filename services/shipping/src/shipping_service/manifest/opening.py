"""Opens the manifest that DATABASE_URL names."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from chassis import database
from shipping_service.domain import Manifest

MIGRATIONS = Path(__file__).parent / "migrations"


def open_manifest(url: str) -> AbstractAsyncContextManager[Manifest]:
    """Migrate the database and open the manifest in it; see chassis.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    return database.open_store(url, sqlite=_open_sqlite, postgres=_open_postgres)


def _open_sqlite(path: Path) -> AbstractAsyncContextManager[Manifest]:
    from shipping_service.manifest.sqlite import open_sqlite_manifest  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_manifest(path)


def _open_postgres(url: str) -> AbstractAsyncContextManager[Manifest]:
    from shipping_service.manifest.postgres import open_postgres_manifest  # noqa: PLC0415 - only one driver is needed

    return open_postgres_manifest(url)
