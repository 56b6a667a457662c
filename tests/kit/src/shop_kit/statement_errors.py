"""Lets the database fail any statement: PostgreSQL raises an error in its place, SQLite where it runs."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import psycopg
import pytest

from chassis.sql import postgres, sqlite

_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR)
_STATES = ("XX000", "42P01", "23514", "22003", "P0001")
_RAISE = """
    CREATE OR REPLACE FUNCTION raise_error(state TEXT) RETURNS INT LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = state; END $$
"""


@dataclass
class StatementErrors:
    """Counts how often each statement runs, and fails the one that is `failing`, with an error of another kind each."""

    runs: Counter[str] = field(default_factory=Counter)
    failing: str = ""
    _codes: Iterator[int] = field(default_factory=lambda: cycle(_CODES))
    _states: Iterator[str] = field(default_factory=lambda: cycle(_STATES))

    def inject(self, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin, in this process."""
        fetch, send = sqlite.fetch, postgres.send

        def fetch_or_fail(connection: sqlite3.Connection, text: str, parameters: Any) -> Any:
            if self._fails(text):
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = next(self._codes)
                raise error
            return fetch(connection, text, parameters)

        async def send_or_fail(connection: Any, text: str, parameters: Any) -> Any:
            failing = f"SELECT raise_error('{next(self._states)}')" if self._fails(text) else text
            return await send(connection, failing, parameters)

        monkeypatch.setattr(sqlite, "fetch", fetch_or_fail)
        monkeypatch.setattr(postgres, "send", send_or_fail)
        if database_url.startswith("postgresql"):
            with psycopg.connect(database_url) as server:
                server.execute(_RAISE)

    def _fails(self, text: str) -> bool:
        self.runs[text] += 1
        return text == self.failing


@pytest.fixture
def statement_errors(database_url: str, monkeypatch: pytest.MonkeyPatch) -> StatementErrors:
    """Errors of the database `database_url`."""
    errors = StatementErrors()
    errors.inject(database_url, monkeypatch)
    return errors
