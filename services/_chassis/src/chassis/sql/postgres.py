"""Connections to a PostgreSQL server that may restart at any time: work is retried until the server responds."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar

import asyncpg

from chassis.sql.postgres_connection import ERRORS, Connection, Record, connect
from chassis.sql.url import PostgresUrl
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import Operation, PoolTelemetry, PoolUse, StoreTelemetry, sql_operation

T = TypeVar("T")
Parameters: TypeAlias = Mapping[str, Any]

ANSWER_WITHIN_SECONDS = 4
"""How long work is retried before the server counts as unavailable."""

_RETRY_SECONDS = 0.1
_CONNECT_WITHIN_SECONDS = 1
_CLOSE_WITHIN_SECONDS = 1
_CONNECTIONS = 8
# Of a server that stops, starts, has no resources left or broke off a transaction. 25006 is a write that was refused:
# after a failover the old server may still accept connections.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
_TRANSIENT_STATES = frozenset({"25006"})
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")


@asynccontextmanager
async def open_postgres(url: str, telemetry: Telemetry | None = None) -> AsyncIterator["Postgres"]:
    """Open a pool of connections to the database at a libpq URL, whether or not the server responds yet."""
    opened = Postgres(PostgresUrl.parse(url), telemetry or Telemetry())
    try:
        yield opened
    finally:
        await opened.close()


class Postgres:
    """Runs statements and transactions on a pool of connections.

    Statements have parameters by name, `:name`. A connection whose work fails is not used again: after a failover it
    may lead to the old server. It is closed in the background, because a server that has vanished would delay that.
    """

    def __init__(self, url: PostgresUrl, telemetry: Telemetry) -> None:
        self._url = url
        self.store = _store_telemetry(url, telemetry)
        self._idle: list[Connection] = []  # used last is used first
        self._free = asyncio.Semaphore(_CONNECTIONS)
        self._used = self._pending = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._waits = PoolTelemetry(telemetry, self.store.name, self._use)

    async def fetch(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Record]:
        """Run a statement as a transaction of its own and return its rows. Raise TimeoutError as `run` does."""

        async def work(connection: Connection) -> list[Record]:
            return await _fetch(connection, text, parameters)

        return await self.run(work, text, within_seconds=within_seconds)

    async def fetch_each(self, text: str, parameters: Sequence[Parameters], *, measured: bool = True) -> list[Record]:
        """Run a statement with each of the parameters, in one transaction; return all rows, as `fetch` does."""
        sql, names = positional(text)
        values = [[each[name] for name in names] for each in parameters]

        async def work(connection: Connection) -> list[Record]:
            if len(values) == 1:
                return await connection.fetch(sql, *values[0])
            return await connection.fetchmany(sql, values)

        return await self.run(work, text, measured=measured)

    async def transaction(self, *batch: tuple[str, Parameters], texts: Sequence[str] = ()) -> list[list[Record]]:
        """Run statements in one transaction; return the rows of each, as `fetch` does.

        Args:
            batch: the statements, with their parameters.
            texts: what the span says that they are; by default the statements themselves.
        """
        described = texts or [text for text, _ in batch]

        async def work(connection: Connection) -> list[list[Record]]:
            if len(batch) == 1:
                return [await _fetch(connection, *batch[0])]
            await connection.execute("BEGIN")
            results = [await _fetch(connection, text, parameters) for text, parameters in batch]
            await connection.execute("COMMIT")
            return results

        return await self.run(work, *described)

    async def run(
        self,
        work: Callable[[Connection], Awaitable[T]],
        text: str,
        *more: str,
        within_seconds: float | None = None,
        measured: bool = True,
    ) -> T:
        """Run the work on a connection. Raise TimeoutError when it does not finish in time.

        Args:
            work: restarted from its beginning whenever the connection is lost, so it must be safe to repeat.
            text: the work's statement, for the span of each attempt.
            more: further statements of the same transaction.
            within_seconds: time limit over all attempts; ANSWER_WITHIN_SECONDS by default.
            measured: False if its callers record it, each for itself.
        """
        operation = sql_operation(text, *more) if measured else None
        async with asyncio.timeout(within_seconds or ANSWER_WITHIN_SECONDS) as limit:
            while True:
                try:
                    return await self._attempt(work, operation, limit)
                except ERRORS as error:
                    if not _is_transient(error):
                        _remove_values(error)
                        raise
                await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Close all connections. Work that runs must have ended."""
        self._discard_idle()
        await asyncio.gather(*self._closing)

    async def _attempt(
        self, work: Callable[[Connection], Awaitable[T]], operation: Operation | None, limit: asyncio.Timeout
    ) -> T:
        connection = await self._acquire()
        reusable = False
        try:
            with self.store.measure(operation, limit) if operation else nullcontext():
                result = await work(connection)
            reusable = True
            return result
        finally:
            self._used -= 1
            self._free.release()
            if reusable:
                self._idle.append(connection)
            else:
                self._discard(connection)
            if limit.expired():  # the server may have vanished, and the idle connections with it
                self._discard_idle()

    async def _acquire(self) -> Connection:
        started = time.perf_counter()
        self._pending += 1
        try:
            await self._free.acquire()
            try:
                connection = await self._connection()
            except BaseException:
                self._free.release()
                raise
        except BaseException as error:
            self._waits.record_wait(started, error)
            raise
        finally:
            self._pending -= 1
        self._used += 1
        self._waits.record_wait(started)
        return connection

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return await connect(self._url, timeout_seconds=_CONNECT_WITHIN_SECONDS)

    def _discard_idle(self) -> None:
        while self._idle:
            self._discard(self._idle.pop())

    def _discard(self, connection: Connection) -> None:
        closing = asyncio.create_task(_close(connection), name="close a connection")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _use(self) -> PoolUse:
        return PoolUse(self._used, len(self._idle), _CONNECTIONS, self._pending)


@cache
def positional(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with positions instead of the parameters' names, and the names in their order."""
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text), names


async def _fetch(connection: Connection, text: str, parameters: Parameters) -> list[Record]:
    sql, names = positional(text)
    return await connection.fetch(sql, *[parameters[name] for name in names])


async def _close(connection: Connection) -> None:
    """Cancel what a connection runs, and close it. asyncpg aborts it if the server does not respond."""
    with suppress(Exception):
        await connection.close(timeout=_CLOSE_WITHIN_SECONDS)


def _is_transient(error: Exception) -> bool:
    match error:
        case asyncpg.ClientConfigurationError():
            return False
        case asyncpg.InvalidCachedStatementError():  # a migration has changed the table
            return True
        case asyncpg.PostgresError():
            state = error.sqlstate or ""
            return state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT_STATES
    return True


def _remove_values(error: Exception) -> None:
    """Remove from an error what quotes values of parameters and rows: errors are logged."""
    if isinstance(error, asyncpg.PostgresError):
        error.detail = None
        if (error.sqlstate or "").startswith("22"):  # data exception; asyncpg's own for a value of a wrong type
            error.args = ("a value cannot be converted or stored",)


def _store_telemetry(url: PostgresUrl, telemetry: Telemetry) -> StoreTelemetry:
    """Describe the database of a URL; of several servers by the names of all."""
    hosts = ",".join(host for host, _ in url.servers if host)
    port = url.servers[0][1] if len(url.servers) == 1 else None
    return StoreTelemetry(telemetry, "postgresql", url.database or "", hosts or None, port)
