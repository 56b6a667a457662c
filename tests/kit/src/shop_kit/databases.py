"""Read and change a service's database past the service."""

import sqlite3
from contextlib import closing
from typing import Any

import psycopg

from chassis.sql.url import sqlite_path


def execute(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Execute a statement in a transaction of its own and return its rows."""
    path = sqlite_path(url)
    if path is None:
        with psycopg.connect(url) as server:
            cursor = server.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement).fetchall()
