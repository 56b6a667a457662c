"""Migrated databases for tests; read and change a service's database past the service."""

import shutil
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from chassis.sql.migrate import migrate
from chassis.sql.sqlite import add_functions, without_row_locks
from chassis.sql.url import libpq_url, sqlite_path


class Templates:
    """Databases at the newest revision, each migrated once and then copied: migrating takes longer than most tests.

    Args:
        folder: for SQLite files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[tuple[str, Path], str] = {}
        self._connections: dict[str, psycopg.Connection] = {}

    def copy_file(self, migrations: Path | None, path: Path) -> str:
        """Return the URL of a copy at `path`; without migrations the file does not exist yet."""
        if migrations is not None:
            shutil.copy(self._folder / self._migrated("sqlite", migrations), path)
        return f"sqlite:///{path}"

    @contextmanager
    def copy_database(self, server: str, migrations: Path | None) -> Iterator[str]:
        """Yield the URL of a copy on a PostgreSQL server, empty without migrations; drop it in the end."""
        template = "template1" if migrations is None else self._migrated(server, migrations)
        name = f"test_{uuid.uuid4().hex}"
        self._run(server, f"CREATE DATABASE {name} TEMPLATE {template}")
        yield with_database(server, name)
        self._run(server, f"DROP DATABASE {name} WITH (FORCE)")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _run(self, server: str, statement: str) -> None:
        if server not in self._connections:
            self._connections[server] = psycopg.connect(server, autocommit=True)
        self._connections[server].execute(statement.encode())

    def _migrated(self, server: str, migrations: Path) -> str:
        """Return the name of the template, a file or a database of the server."""
        if (server, migrations) not in self._names:
            name = f"template_{uuid.uuid4().hex}"
            if server == "sqlite":
                migrate(f"sqlite:///{self._folder / name}", migrations)
            else:
                self._run(server, f"CREATE DATABASE {name} TEMPLATE template1")
                migrate(with_database(server, name), migrations)
            self._names[server, migrations] = name
        return self._names[server, migrations]


def with_database(url: str, name: str) -> str:
    """Return the URL of another database of the same PostgreSQL server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def execute(url: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Execute a statement in a transaction of its own and return its rows."""
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(libpq_url(url)) as server:
            cursor = server.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(path, timeout=300)) as connection, connection:  # while a service writes
        return connection.execute(statement, parameters).fetchall()


def plan_on_sqlite(url: str, statement: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return the steps of a statement's plan on a SQLite database."""
    with closing(sqlite3.connect(str(sqlite_path(url)))) as connection:
        add_functions(connection)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {without_row_locks(statement)}", parameters)
        return [row[3] for row in plan]
