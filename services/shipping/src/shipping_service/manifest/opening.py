"""Opens the manifest that DATABASE_URL names."""

from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from chassis.sql import database
from chassis.telemetry.instruments import Telemetry
from shipping_service.domain import Manifest

MIGRATIONS = Path(__file__).parent / "migrations"


def open_manifest(url: str, telemetry: Telemetry | None = None) -> AbstractAsyncContextManager[Manifest]:
    """Migrate the database and open the manifest in it; see chassis.sql.database for the URLs."""
    database.migrate(url, MIGRATIONS)
    telemetry = telemetry or Telemetry()
    return database.open_store(
        url, sqlite=partial(_open_sqlite, telemetry), postgres=partial(_open_postgres, telemetry)
    )


def _open_sqlite(telemetry: Telemetry, path: Path) -> AbstractAsyncContextManager[Manifest]:
    from shipping_service.manifest.sqlite import open_sqlite_manifest  # noqa: PLC0415 - only one driver is needed

    return open_sqlite_manifest(path, telemetry)


def _open_postgres(telemetry: Telemetry, url: str) -> AbstractAsyncContextManager[Manifest]:
    from shipping_service.manifest.postgres import open_postgres_manifest  # noqa: PLC0415 - only one driver is needed

    return open_postgres_manifest(url, telemetry)
