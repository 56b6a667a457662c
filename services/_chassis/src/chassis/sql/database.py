"""Database URLs, engines and schema migrations, for a SQLite file or PostgreSQL.

URLs are `sqlite:///relative.db`, `sqlite:////absolute.db` and `postgresql://user:password@host:port/name`, or any other
URL of libpq: `postgresql://user@one,two/name?target_session_attrs=read-write` finds the primary of two servers.
A folder of migrations contains only `versions/*.py`, each with `revision`, `down_revision` and `upgrade()`.

Importing SQLAlchemy and Alembic takes most of a second, longer than the rest of a service's start. They and psycopg,
their driver, are imported inside the functions that need them; `migrate` needs none when no migration is pending.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chassis.sql.url import PostgresUrl
from chassis.telemetry.instruments import Telemetry

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncEngine

StoreT = TypeVar("StoreT")

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for the lock: SQLite allows one writer at a time."""

CONNECT_TIMEOUT_SECONDS = 30
"""How long a starting service waits for PostgreSQL to accept connections: both may start at the same moment."""

_RETRY_SECONDS = 0.5
_ATTEMPT_SECONDS = 2

STORED_REVISION = "SELECT version_num FROM alembic_version"
POOL_CONNECT_TIMEOUT_SECONDS = 5
"""How long a request waits for a new connection of an engine, unless the URL has `connect_timeout`."""

_NOT_ALLOWED = {"42501", "25006"}  # insufficient privilege, read-only transaction
_DRIVER = "postgresql+psycopg"
_ADVISORY_LOCK = 0x5348_4F50  # "SHOP"; advisory locks belong to one database, so one number serves every service
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["']([^"']+)["']""", re.MULTILINE)


class DatabaseUnusable(OSError):
    """The database can't be used by a starting process. The message is one line, without the password."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"DATABASE_URL: {' '.join(str(reason).split())}")


def sqlite_path(url: str) -> Path | None:
    """Return the file of a `sqlite:///` URL; None for any other URL."""
    name = url.removeprefix("sqlite:///")
    return Path(name) if name != url and name else None


def libpq_url(url: str) -> str:
    """Return a PostgreSQL URL as libpq and psycopg expect it, without the name of SQLAlchemy's driver.

    Raise ValueError for any other URL. The message does not quote it: it may contain a password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("a database URL begins with sqlite:/// or postgresql://")
    return f"postgresql://{rest}"


def open_store(
    url: str,
    *,
    sqlite: Callable[[Path], AbstractAsyncContextManager[StoreT]],
    postgres: Callable[[str], AbstractAsyncContextManager[StoreT]],
) -> AbstractAsyncContextManager[StoreT]:
    """Open the SQLite or PostgreSQL store that a URL names.

    Args:
        url: see this module's docstring.
        sqlite: opens a store in a file. Both openers import their driver when called, so that only one is loaded.
        postgres: opens a store at a libpq URL.
    """
    path = sqlite_path(url)
    return postgres(libpq_url(url)) if path is None else sqlite(path)


def engine(url: str, telemetry: Telemetry | None = None) -> "AsyncEngine":
    """Create an engine: aiosqlite for a SQLite file, psycopg 3 for PostgreSQL. It connects on first use.

    On SQLite a transaction takes the write lock when it begins, so that it waits at that point instead of failing
    later. Reads without a lock use `engine.execution_options(isolation_level="AUTOCOMMIT")`. Errors do not contain the
    parameter values of a statement.

    Args:
        url: see this module's docstring.
        telemetry: records statements and the use of the pool; by default nothing.
    """
    from sqlalchemy import event  # noqa: PLC0415 - see the module's docstring
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    from chassis.sql.engine_telemetry import MeasuredPool, measure_engine  # noqa: PLC0415

    path = sqlite_path(url)
    options: dict[str, Any] = {"poolclass": MeasuredPool, "hide_parameters": True}
    if path is None:
        target = _sqlalchemy_url(url)
        if "connect_timeout" not in target.query:
            target = target.update_query_dict({"connect_timeout": str(POOL_CONNECT_TIMEOUT_SECONDS)})
        created = create_async_engine(target, pool_pre_ping=True, **options)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        options["connect_args"] = {"timeout": BUSY_TIMEOUT_SECONDS}
        created = create_async_engine(f"sqlite+aiosqlite:///{path}", **options)
        event.listen(created.sync_engine, "connect", _set_up_sqlite)
        event.listen(created.sync_engine, "begin", _begin_immediate)
    measure_engine(created, telemetry or Telemetry())
    return created


def validate_url(url: str) -> None:
    """Raise ValueError unless a URL is well-formed. No message quotes it: it may contain a password."""
    if sqlite_path(url) is not None:
        return
    PostgresUrl.parse(libpq_url(url))


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
    if path is not None:
        return _sqlite_revision(path)
    with ThreadPoolExecutor(1) as thread:  # an event loop may be running in this one
        return thread.submit(asyncio.run, _postgres_revision(libpq_url(url), connect_seconds)).result()


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


async def _postgres_revision(url: str, connect_seconds: float) -> str | None:
    import asyncpg  # noqa: PLC0415 - not needed with SQLite

    from chassis.sql.postgres_connection import ServerUnreachable, connect  # noqa: PLC0415

    deadline = time.monotonic() + connect_seconds
    while True:
        try:
            connection = await connect(PostgresUrl.parse(url), timeout_seconds=_ATTEMPT_SECONDS)
            break
        except asyncpg.ClientConfigurationError as error:
            raise DatabaseUnusable(error) from error
        except ServerUnreachable as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise DatabaseUnusable(error) from error
            await asyncio.sleep(_RETRY_SECONDS)
    try:
        revision: str | None = await connection.fetchval(STORED_REVISION)
    except asyncpg.UndefinedTableError:
        return None
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseUnusable(error) from error
    finally:
        await connection.close(timeout=_ATTEMPT_SECONDS)
    return revision


def is_pending(stored: str | None, migrations: Path) -> bool:
    """Return whether a database at revision `stored` lacks a migration of this folder.

    False for a revision that is not in the folder: during a rollout, replicas of the older release continue to serve
    while the newer release has already migrated the database.
    """
    revisions, superseded = _revisions(migrations)
    return stored is None or (stored in revisions and stored in superseded)


async def is_current(connections: "AsyncEngine", migrations: Path) -> bool:
    """Return whether every migration of this folder has run, for a readiness check."""
    async with connections.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        stored = (await connection.exec_driver_sql(STORED_REVISION)).scalar_one_or_none()
    return not is_pending(stored, migrations)


def _sqlalchemy_url(url: str) -> "URL":
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - see the module's docstring
    from sqlalchemy.engine import URL, make_url  # noqa: PLC0415

    libpq = libpq_url(url)
    parts = {name: str(value) for name, value in conninfo_to_dict(libpq).items()}
    if "," not in parts.get("host", ""):
        return make_url(libpq).set(drivername=_DRIVER)
    # SQLAlchemy accepts several hosts only in the query.
    user, password, name = (parts.pop(key, None) for key in ("user", "password", "dbname"))
    return URL.create(_DRIVER, user, password, database=name, query=parts)


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


def _migration_engine(url: str) -> "Engine":
    from sqlalchemy import create_engine, event  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    path = sqlite_path(url)
    if path is None:
        return create_engine(_sqlalchemy_url(url), poolclass=NullPool)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be migrating, which takes much longer than an ordinary write.
    target = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})
    event.listen(target, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(target, "begin", lambda connection: connection.exec_driver_sql("BEGIN EXCLUSIVE"))
    return target


def _upgrade(connection: "Connection", migrations: Path) -> None:
    """Run the pending migrations within the connection's transaction.

    Foreign keys are off on this SQLite connection: rebuilding a table drops it first, which would cascade.
    """
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.environment import EnvironmentContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)

    def steps(revision: Any, _context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)  # noqa: SLF001 - what Alembic's own upgrade command calls

    with EnvironmentContext(config, scripts, fn=steps, destination_rev="head") as environment:
        environment.configure(connection=connection, render_as_batch=True)
        environment.run_migrations()


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    from chassis.sql.write_ahead_log import use_write_ahead_log  # noqa: PLC0415 - see `_sqlite_revision`

    connection.isolation_level = None
    use_write_ahead_log(connection)
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_immediate(connection: "Connection") -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
