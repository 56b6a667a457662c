from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from chassis.sql.database import Database
from chassis.sql.url import libpq_url, sqlite_path
from chassis.telemetry.instruments import Telemetry


def open_database(
    url: str, telemetry: Telemetry | None = None, *, unavailable: Callable[[], Exception]
) -> AbstractAsyncContextManager[Database]:
    """Open a migrated database. PostgreSQL needn't be up yet. Database methods raise `unavailable()` when they fail."""
    path, telemetry = sqlite_path(url), telemetry or Telemetry()
    if path is None:
        from chassis.sql.postgres import PostgresDatabase  # noqa: PLC0415 - importing psycopg takes 9 MB

        return PostgresDatabase(libpq_url(url), telemetry, unavailable)
    from chassis.sql.sqlite import SqliteDatabase  # noqa: PLC0415 - importing sqlite3 takes 1 MB

    return SqliteDatabase(path, telemetry, unavailable)
