"""Schema migrations, for a SQLite file or PostgreSQL.

A folder of migrations contains only `versions/*.py`, each with `revision`, `down_revision` and `upgrade()`.

Importing SQLAlchemy and Alembic takes most of a second, longer than the rest of a service's start, and 22 MiB. They are
imported inside the functions that need them, which none does when no migration is pending.
"""

import os
import re
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from chassis.sql.url import libpq_url, sqlite_path

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for the lock: SQLite allows one writer at a time."""

CONNECT_TIMEOUT_SECONDS = 30
"""How long a starting service waits for PostgreSQL to accept connections: both may start at the same moment."""

STORED_REVISION = "SELECT version_num FROM alembic_version"

_RETRY_SECONDS = 0.5
_ATTEMPT_SECONDS = 2
_DRIVER = "postgresql+psycopg"
_NOT_ALLOWED = {"42501", "25006"}  # insufficient privilege, read-only transaction
_ADVISORY_LOCK = 0x5348_4F50  # "SHOP"; advisory locks belong to one database, so one number serves every service
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["']([^"']+)["']""", re.MULTILINE)


class DatabaseUnusable(OSError):
    """The database can't be used by a starting process. The message is one line, without the password."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"DATABASE_URL: {' '.join(str(reason).split())}")


def migrate(url: str, migrations: Path, *, connect_seconds: float = CONNECT_TIMEOUT_SECONDS) -> None:
    """Upgrade the database to the newest revision in `migrations`. Create a missing SQLite file and its folder.

    Safe to call from many processes at once: one migrates, the others wait and find nothing pending. A database at a
    revision that is not in this folder, that of a newer release, is not changed. Raise DatabaseUnusable when
    PostgreSQL accepts no connection within `connect_seconds`, or when the file can't be written.
    """
    if not needs_migration(url, migrations, connect_seconds=connect_seconds):
        return
    import sqlite3  # noqa: PLC0415 - see the module's docstring

    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    path, target = sqlite_path(url), _migration_engine(url)
    try:
        with target.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            _upgrade(connection, migrations)
    except DBAPIError as error:
        if path is not None and getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
            raise DatabaseUnusable(f"can't write {path}: {error.orig}") from error
        if getattr(error.orig, "sqlstate", None) not in _NOT_ALLOWED:
            raise
        raise DatabaseUnusable(error.orig) from error
    finally:
        target.dispose()


def needs_migration(url: str, migrations: Path, *, connect_seconds: float = CONNECT_TIMEOUT_SECONDS) -> bool:
    """Return whether `migrate` would change the database; raises what it raises."""
    if (path := sqlite_path(url)) is not None:
        _require_writable(path)
    return is_pending(stored_revision(url, connect_seconds=connect_seconds), migrations)


def stored_revision(url: str, *, connect_seconds: float = CONNECT_TIMEOUT_SECONDS) -> str | None:
    """Return the revision of a database; None before its first migration. Raise DatabaseUnusable."""
    path = sqlite_path(url)
    return _postgres_revision(libpq_url(url), connect_seconds) if path is None else _sqlite_revision(path)


def is_pending(stored: str | None, migrations: Path) -> bool:
    """Return whether a database at revision `stored` lacks a migration of this folder.

    False for a revision that is not in the folder: during a rollout, replicas of the older release continue to serve
    while the newer release has already migrated the database.
    """
    revisions, superseded = _revisions(migrations)
    return stored is None or (stored in revisions and stored in superseded)


def sqlalchemy_url(url: str) -> "URL":
    """Return the URL of a PostgreSQL database for SQLAlchemy and psycopg."""
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - see the module's docstring
    from sqlalchemy.engine import URL, make_url  # noqa: PLC0415

    libpq = libpq_url(url)
    parts = {name: str(value) for name, value in conninfo_to_dict(libpq).items()}
    if "," not in parts.get("host", ""):
        return make_url(libpq).set(drivername=_DRIVER)
    # SQLAlchemy accepts several hosts only in the query.
    user, password, name = (parts.pop(key, None) for key in ("user", "password", "dbname"))
    return URL.create(_DRIVER, user, password, database=name, query=parts)


def _require_writable(path: Path) -> None:
    """Create the folder of a SQLite file if it is missing. Raise DatabaseUnusable unless the file can be written.

    The file is not opened to find out: closing it would release the locks that this process holds on it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnusable(f"can't write {path}: {error.strerror}") from error
    if path.is_dir():
        raise DatabaseUnusable(f"can't write {path}: Is a directory")
    if path.exists() and not os.access(path, os.W_OK):
        raise DatabaseUnusable(f"can't write {path}")
    if not os.access(path.parent, os.W_OK):  # SQLite creates further files beside its own
        raise DatabaseUnusable(f"can't write to the folder {path.parent}")


def _postgres_revision(url: str, connect_seconds: float) -> str | None:
    import psycopg  # noqa: PLC0415 - not needed with SQLite

    deadline = time.monotonic() + connect_seconds
    while True:
        try:
            connection = psycopg.connect(url, connect_timeout=_ATTEMPT_SECONDS)
            break
        except psycopg.OperationalError as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise DatabaseUnusable(error) from error
            time.sleep(_RETRY_SECONDS)
    with connection:
        try:
            row = connection.execute(STORED_REVISION).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
        except psycopg.errors.InsufficientPrivilege as error:
            raise DatabaseUnusable(error) from error
    return None if row is None else str(row[0])


def _sqlite_revision(path: Path) -> str | None:
    if not path.exists():
        return None
    import sqlite3  # noqa: PLC0415 - takes 1 MB, which services without a SQLite file save

    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        try:
            row = connection.execute(STORED_REVISION).fetchone()
        except sqlite3.DatabaseError as error:
            if "no such table" in str(error):
                return None
            raise DatabaseUnusable(f"{path}: {error}") from error
    return None if row is None else str(row[0])


def _revisions(migrations: Path) -> tuple[set[str], set[str]]:
    """Return the revisions of a folder, and the superseded ones. Parsed without Alembic, which is slow to import."""
    revisions: set[str] = set()
    superseded: set[str] = set()
    for file in (migrations / "versions").glob("*.py"):
        for is_predecessor, revision in _REVISION.findall(file.read_text(encoding="utf-8")):
            (superseded if is_predecessor else revisions).add(revision)
    if len(revisions - superseded) != 1:
        raise ValueError(f"{migrations} must have one newest revision, not {sorted(revisions - superseded)}")
    return revisions, superseded


def _migration_engine(url: str) -> "Engine":
    from sqlalchemy import create_engine, event  # noqa: PLC0415 - see the module's docstring
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    path = sqlite_path(url)
    if path is None:
        return create_engine(sqlalchemy_url(url), poolclass=NullPool)
    # Another process may be migrating, which takes much longer than an ordinary write.
    target = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})
    # The driver's own transactions would begin with the first write, after other processes have read the revision.
    event.listen(target, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(target, "begin", lambda connection: connection.exec_driver_sql("BEGIN EXCLUSIVE"))
    return target


def _upgrade(connection: "Connection", migrations: Path) -> None:
    """Run the pending migrations within the connection's transaction.

    Foreign keys are off on this SQLite connection: rebuilding a table drops it first, which would cascade.
    """
    from alembic import command  # noqa: PLC0415 - see the module's docstring
    from alembic.config import Config  # noqa: PLC0415

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", _escaped(Path(__file__).parent))  # for `env.py`
    config.set_main_option("version_locations", _escaped(migrations / "versions"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def _escaped(path: Path) -> str:
    """Return a path as a value of a configuration, where a percent sign begins an interpolation."""
    return str(path).replace("%", "%%")
