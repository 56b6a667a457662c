"""Migrates databases before the services start: Alembic takes each service that finds an empty one most of a second."""

from collections.abc import Mapping
from pathlib import Path

from chassis.sql.migrate import migrate
from checkout_service.journal.opening import MIGRATIONS as JOURNAL
from email_service.spool.sql import MIGRATIONS as SPOOL
from payment_service.ledger.sql import MIGRATIONS as LEDGER
from shipping_service.manifest.sql import MIGRATIONS as MANIFEST

MIGRATIONS = {"checkout": JOURNAL, "payment": LEDGER, "shipping": MANIFEST, "email": SPOOL}
"""The folder of each service's migrations."""


def files_in(folder: Path) -> dict[str, str]:
    """Return the URLs of the services' SQLite files in the folder of a shop, by service."""
    return {name: f"sqlite:///{folder}/.shop/{name}.db" for name in MIGRATIONS}


def migrate_databases(urls: Mapping[str, str]) -> None:
    """Migrate the databases with these URLs, by service."""
    for name, url in urls.items():
        migrate(url, MIGRATIONS[name])
