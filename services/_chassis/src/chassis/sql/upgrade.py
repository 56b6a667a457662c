"""Runs pending migrations with Alembic, in one transaction."""

import sqlite3
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from chassis.sql.sqlalchemy_url import UNPREPARED, sqlalchemy_url
from chassis.sql.url import DatabaseUnusable, sqlite_path

_NOT_ALLOWED = {"42501", "25006"}  # SQLSTATEs for insufficient privilege and a read-only transaction
_ADVISORY_LOCK = 0x5348_4F50  # "SHOP" in ASCII. Advisory locks are per database, so all services can share this number.


def upgrade(url: str, migrations: Path) -> None:
    """Upgrade the database to the newest revision in `migrations`. Raise DatabaseUnusable if it isn't writable."""
    path, target = sqlite_path(url), _migration_engine(url)
    try:
        with target.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            # SQLite's foreign keys must be off: rebuilding a table drops it, which could delete rows that refer to it.
            scripts, context = ScriptDirectory(str(migrations)), MigrationContext.configure(connection)
            with Operations.context(context):
                for script in reversed([*scripts.iterate_revisions("head", context.get_current_revision())]):
                    script.module.upgrade()
            context.stamp(scripts, "head")
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
    # Wait up to a minute, because another process may be migrating, which takes much longer than an ordinary write.
    target = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})
    # By default, a transaction begins only at the first write, so two processes could both run a pending migration.
    event.listen(target, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(target, "begin", lambda connection: connection.exec_driver_sql("BEGIN EXCLUSIVE"))
    return target
