"""Where a service keeps rows, a SQLite file or PostgreSQL, and the migrations that shape them.

Addresses are `sqlite:///relative.db`, `sqlite:////absolute.db` and `postgresql://user:password@host:port/name`. A
folder of migrations needs nothing but `versions/*.py`, each with `revision`, `down_revision` and `upgrade()`.

SQLAlchemy and Alembic take most of a second to import, longer than a service may take to serve: they are imported by
the functions that need them, and `migrate` needs neither when nothing is pending.
"""

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

StoreT = TypeVar("StoreT")

BUSY_TIMEOUT_SECONDS = 10
"""How long a writer waits for the one before it: SQLite has room for one."""

START_PATIENCE_SECONDS = 30
"""How long a starting service waits for PostgreSQL to answer: both may start at the same moment."""

STORED_REVISION = "SELECT version_num FROM alembic_version"
_ADVISORY_LOCK = 0x5348_4F50  # "SHOP"; advisory locks belong to one database, so one number serves every service
_REVISION = re.compile(r"""^(down_)?revision\b[^=\n]*=\s*["']([^"']+)["']""", re.MULTILINE)


def sqlite_path(url: str) -> Path | None:
    """Tell the file of a `sqlite:///` address; None for any other address."""
    name = url.removeprefix("sqlite:///")
    return Path(name) if name != url and name else None


def libpq_url(url: str) -> str:
    """Tell a PostgreSQL address as libpq and psycopg read it, without SQLAlchemy's driver.

    Raises ValueError for any other address, without its text: it may hold a password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("a database address begins with sqlite:/// or postgresql://")
    return f"postgresql://{rest}"


def open_store(
    url: str,
    *,
    sqlite: Callable[[Path], AbstractAsyncContextManager[StoreT]],
    postgres: Callable[[str], AbstractAsyncContextManager[StoreT]],
) -> AbstractAsyncContextManager[StoreT]:
    """Open the store that a URL names.

    Args:
        url: see this module's docstring.
        sqlite: opens a store in a file. Each of the two imports its driver when called: only one is needed.
        postgres: opens a store at a libpq URL.
    """
    path = sqlite_path(url)
    return postgres(libpq_url(url)) if path is None else sqlite(path)


def engine(url: str) -> "AsyncEngine":
    """Open a pool of connections, lazily: aiosqlite for a SQLite file, psycopg 3 for PostgreSQL.

    On SQLite a transaction takes the write lock when it begins, so that it waits for its turn instead of failing in the
    middle. Reads that want no lock use `engine.execution_options(isolation_level="AUTOCOMMIT")`. Errors never tell the
    values of a statement's parameters.
    """
    from sqlalchemy import event  # noqa: PLC0415 - see the module's docstring
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    path = sqlite_path(url)
    if path is None:
        return create_async_engine(_sqlalchemy_url(url), pool_pre_ping=True, hide_parameters=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = create_async_engine(
        f"sqlite+aiosqlite:///{path}", connect_args={"timeout": BUSY_TIMEOUT_SECONDS}, hide_parameters=True
    )
    event.listen(opened.sync_engine, "connect", _set_up_sqlite)
    event.listen(opened.sync_engine, "begin", _begin_immediate)
    return opened


def migrate(url: str, migrations: Path) -> None:
    """Bring the database to the newest revision in `migrations`, creating a SQLite file and its folder if need be.

    Any number of processes may call this at once: one migrates, the others wait for it and find nothing to do. A
    database at a revision this folder does not know, one of a newer release, is left as it is.
    PostgreSQL gets half a minute to answer, then the driver's own error is raised.
    """
    if not is_pending(stored_revision(url), migrations):
        return
    target = _migration_engine(url)
    try:
        with target.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
            _upgrade(connection, migrations)
    finally:
        target.dispose()


def stored_revision(url: str) -> str | None:
    """Read the revision a database is at; None when it has none yet."""
    path = sqlite_path(url)
    if path is not None:
        return _sqlite_revision(path)
    import psycopg  # noqa: PLC0415 - a third of a second that SQLite does not need

    with _connect_patiently(url) as connection:
        try:
            row = connection.execute(STORED_REVISION).fetchone()
        except psycopg.errors.UndefinedTable:
            return None
    return None if row is None else str(row[0])


def _connect_patiently(url: str) -> "psycopg.Connection[tuple[Any, ...]]":
    import psycopg  # noqa: PLC0415 - a third of a second that SQLite does not need

    deadline = time.monotonic() + START_PATIENCE_SECONDS
    while True:
        try:
            return psycopg.connect(libpq_url(url))
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def is_pending(stored: str | None, migrations: Path) -> bool:
    """Tell whether a migration of this folder is still to run on a database at revision `stored`.

    False for a revision the folder does not know: during a rollout replicas of the older release go on serving beside a
    database that the newer one has migrated already.
    """
    known, replaced = _revisions(migrations)
    return stored is None or (stored in known and stored in replaced)


async def is_current(opened: "AsyncEngine", migrations: Path) -> bool:
    """Ask the database through the pool whether every migration of this folder has run, for a readiness check."""
    async with opened.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        stored = (await connection.exec_driver_sql(STORED_REVISION)).scalar_one_or_none()
    return not is_pending(stored, migrations)


def _sqlalchemy_url(url: str) -> str:
    return libpq_url(url).replace("postgresql://", "postgresql+psycopg://", 1)


def _revisions(migrations: Path) -> tuple[set[str], set[str]]:
    """Find the revisions of a folder, and which of them another one follows, without importing Alembic."""
    known: set[str] = set()
    replaced: set[str] = set()
    for file in (migrations / "versions").glob("*.py"):
        for is_predecessor, revision in _REVISION.findall(file.read_text(encoding="utf-8")):
            (replaced if is_predecessor else known).add(revision)
    if len(known - replaced) != 1:
        raise ValueError(f"{migrations} must have one newest revision, not {sorted(known - replaced)}")
    return known, replaced


def _sqlite_revision(path: Path) -> str | None:
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        try:
            row = connection.execute(STORED_REVISION).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return None
            raise
    return None if row is None else str(row[0])


def _migration_engine(url: str) -> "Engine":
    from sqlalchemy import create_engine, event  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    path = sqlite_path(url)
    if path is None:
        return create_engine(_sqlalchemy_url(url), poolclass=NullPool)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be migrating: wait for it much longer than for an ordinary write.
    target = create_engine(f"sqlite:///{path}", poolclass=NullPool, connect_args={"timeout": 60})
    event.listen(target, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(target, "begin", lambda connection: connection.exec_driver_sql("BEGIN EXCLUSIVE"))
    return target


def _upgrade(connection: "Connection", migrations: Path) -> None:
    """Run what is pending within the connection's transaction.

    Foreign keys of SQLite are off in it: a table that is rebuilt is dropped first, which would cascade.
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
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_immediate(connection: "Connection") -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
