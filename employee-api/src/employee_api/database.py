import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, Executable, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import NullPool

from chassis.sql import sqlite
from chassis.sql.sqlalchemy_url import UNPREPARED

# SQLSTATE prefixes for connection failures, exhausted resources, shutdowns, and a read-only server (a standby).
_POSTGRES_AWAY = ("08", "53", "57P", "25006")

MIGRATIONS = Path(__file__).parent / "migrations"

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class _Shared:
    stack: AsyncExitStack
    connection: AsyncConnection | None = None


_shared: ContextVar[_Shared | None] = ContextVar("shared_transaction", default=None)


@asynccontextmanager
async def shared_transaction() -> AsyncIterator[None]:
    """Run every `transaction` in the block as part of one shared transaction.

    The shared transaction begins with the first `transaction` in the block. It commits when the block ends, or rolls
    back if the block raises an error.
    """
    async with AsyncExitStack() as stack:
        token = _shared.set(_Shared(stack))
        try:
            yield
        finally:
            _shared.reset(token)


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Run the block in its own transaction, or in a savepoint of the shared transaction if there is one."""
    shared = _shared.get()
    if shared is None:
        async with engine.begin() as connection:
            yield connection
    else:
        if shared.connection is None:
            shared.connection = await shared.stack.enter_async_context(engine.begin())
        async with shared.connection.begin_nested():
            yield shared.connection


@dataclass
class Repository:
    """Base class for database access. Reads need no transaction; changes must be made in a `transaction`."""

    engine: AsyncEngine
    clock: Clock

    @cached_property
    def reads(self) -> AsyncEngine:
        # Without BEGIN and COMMIT a read costs one round trip instead of three.
        return self.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def find_row(self, query: Executable) -> dict[str, Any] | None:
        """Return the first row, keyed by column name, or None if there is no row."""
        return next(iter(await self.find_rows(query)), None)

    async def execute(self, statement: Executable) -> None:
        async with transaction(self.engine) as connection:
            await connection.execute(statement)

    async def find_rows(self, query: Executable) -> list[dict[str, Any]]:
        async with self.reads.connect() as connection:
            return [dict(row) for row in (await connection.execute(query)).mappings()]


def blocking_engine(engine: AsyncEngine) -> Engine:
    """Return a synchronous engine for the same database. It has no pool: every `connect` opens a new connection."""
    if engine.dialect.name == "postgresql":
        return create_engine(engine.url, poolclass=NullPool, connect_args=UNPREPARED)
    return create_engine(engine.url.set(drivername="sqlite"), poolclass=NullPool)


def is_unique_violation(error: DBAPIError) -> bool:
    """Return whether a unique constraint was violated. Client input can violate no other kind of constraint."""
    unique = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
    return getattr(error.orig, "sqlstate", "") == "23505" or getattr(error.orig, "sqlite_errorcode", 0) in unique


def is_away(error: BaseException) -> bool:
    """Return whether an error means that the database is unavailable, and not that the statement is at fault."""
    if isinstance(error, PoolTimeoutError):
        return True
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_away(error.orig))
    if isinstance(error, sqlite3.OperationalError):
        return sqlite.primary_code(error) in sqlite.AWAY
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:  # refused and lost connections have no SQLSTATE
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_POSTGRES_AWAY)
