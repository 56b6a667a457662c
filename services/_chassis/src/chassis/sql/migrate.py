"""Schema migrations. A migrations folder has `versions/*.py`, each with `revision`, `down_revision` and `upgrade()`.

`python -m chassis.sql.migrate` migrates the databases in a JSON object {URL: migrations folder} on standard input.
"""

import json
import os
import re
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from chassis.sql.url import DatabaseUnusable, libpq_url, sqlite_path

BUSY_TIMEOUT_SECONDS = 10  # how long to wait for a SQLite file's write lock
CONNECT_TIMEOUT_SECONDS = 30  # how long to wait for PostgreSQL, which may be starting at the same time
STORED_REVISION = "SELECT version_num FROM alembic_version"

_RETRY_SECONDS = 0.5
_ATTEMPT_SECONDS = 2
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["']([^"']+)["']""", re.MULTILINE)


def migrate(url: str, migrations: Path, *, connect_seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
    """Upgrade the database to the newest revision in `migrations`. Create a missing SQLite file and its folder.

    Several processes may call this at once. If a newer release has migrated the database, leave it unchanged. Raise
    DatabaseUnusable if PostgreSQL accepts no connection within `connect_seconds`, or the SQLite file can't be written.
    """
    if needs_migration(url, migrations, connect_seconds=connect_seconds):
        from chassis.sql.upgrade import upgrade  # noqa: PLC0415 - importing Alembic takes 22 MiB and most of a second

        upgrade(url, migrations)


def needs_migration(url: str, migrations: Path, *, connect_seconds: float) -> bool:
    """Return whether a migration is pending. Raise DatabaseUnusable if the database can't be read or migrated."""
    if (path := sqlite_path(url)) is None:
        row = _read_postgres(libpq_url(url), connect_seconds)
    else:
        _require_writable(path)
        row = _read_sqlite(path)
    return is_pending(None if row is None else str(row[0]), migrations)


def is_pending(stored: str | None, migrations: Path) -> bool:
    """Return whether any migration has not run yet. If a newer release has migrated the database, none is pending."""
    revisions: set[str] = set()
    superseded: set[str] = set()
    # Alembic could read the revisions, but is slow to import.
    for file in (migrations / "versions").glob("*.py"):
        for is_predecessor, revision in _REVISION.findall(file.read_text(encoding="utf-8")):
            (superseded if is_predecessor else revisions).add(revision)
    if len(revisions - superseded) != 1:
        raise ValueError(f"{migrations} must have one newest revision, not {sorted(revisions - superseded)}")
    return stored is None or stored in superseded


def _require_writable(path: Path) -> None:
    """Create a SQLite file's folder if it is missing. Raise DatabaseUnusable if the file can't be written."""
    # Don't check this by opening the file, because closing it would release this process's locks on the file.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnusable(f"can't write {path}: {error.strerror}") from error
    if path.is_dir():
        raise DatabaseUnusable(f"can't write {path}: Is a directory")
    if path.exists() and not os.access(path, os.W_OK):
        raise DatabaseUnusable(f"can't write {path}")
    if not os.access(path.parent, os.W_OK):  # SQLite creates -wal and -shm files next to the database file
        raise DatabaseUnusable(f"can't write to the folder {path.parent}")


def _read_postgres(url: str, connect_seconds: float) -> tuple[Any, ...] | None:
    import psycopg  # noqa: PLC0415 - importing it takes 9 MB, and is only needed for PostgreSQL

    deadline, printed = time.monotonic() + connect_seconds, ""
    while True:
        try:
            connection = psycopg.connect(url, connect_timeout=_ATTEMPT_SECONDS)
            break
        except psycopg.OperationalError as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise DatabaseUnusable(error) from error
            if connect_seconds > CONNECT_TIMEOUT_SECONDS and (problem := str(DatabaseUnusable(error))) != printed:
                print("waiting for PostgreSQL:", problem, file=sys.stderr, flush=True)  # noqa: T201 - logging isn't set up yet
                printed = problem
            time.sleep(_RETRY_SECONDS)
    with connection:
        try:
            return connection.execute(STORED_REVISION).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
        except psycopg.Error as error:
            raise DatabaseUnusable(error) from error


def _read_sqlite(path: Path) -> tuple[Any, ...] | None:
    if not path.exists():
        return None
    import sqlite3  # noqa: PLC0415 - importing it takes 1 MB, and is only needed for SQLite

    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        try:
            row: tuple[Any, ...] | None = connection.execute(STORED_REVISION).fetchone()
        except sqlite3.DatabaseError as error:
            if "no such table" in str(error):
                return None
            raise DatabaseUnusable(f"{path}: {error}") from error
    return row


if __name__ == "__main__":
    try:
        for database_url, folder in json.load(sys.stdin).items():
            migrate(database_url, Path(folder))
    except OSError as unusable:
        sys.exit(str(unusable))
