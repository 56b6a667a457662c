"""Runs pending migrations with Alembic, in one transaction. Only `chassis.sql.migrate` imports this module."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from chassis.sql.sqlalchemy_url import UNPREPARED, sqlalchemy_url
from chassis.sql.url import DatabaseUnusable, sqlite_path

_NOT_ALLOWED = {"42501", "25006"}  # insufficient privilege, read-only transaction
_ADVISORY_LOCK = 0x5348_4F50  # "SHOP" in ASCII; all services can use the same number: advisory locks are per database


def upgrade(url: str, migrations: Path) -> None:
    """Upgrade a database to the newest revision in `migrations`. Raise DatabaseUnusable if it isn't writable."""
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


def _migration_engine(url: str) -> Engine:
    path = sqlite_path(url)
    if path is None:
        return create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args=UNPREPARED)
    # Wait for another process's migration, which takes much longer than an ordinary write.
    target = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})
    # Without this, a transaction begins only at the first write, and two processes could read the same revision first.
    event.listen(target, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(target, "begin", lambda connection: connection.exec_driver_sql("BEGIN EXCLUSIVE"))
    return target


def _upgrade(connection: Connection, migrations: Path) -> None:
    """Run the pending migrations within the connection's transaction.

    Foreign keys are off on this SQLite connection, because rebuilding a table drops it, which would cascade.
    """
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", _escaped(Path(__file__).parent / "migrations"))
    config.set_main_option("version_locations", _escaped(migrations / "versions"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def _escaped(path: Path) -> str:
    """Escape a path for Alembic's configuration, where a percent sign begins an interpolation."""
    return str(path).replace("%", "%%")
