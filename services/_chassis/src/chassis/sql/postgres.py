"""Runs statements on PostgreSQL, retrying them for a few seconds, so that they survive a restart of the server."""

import asyncio
import os
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Self

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool

from chassis.sql.database import Database, Parameters, Statement, StatementRejected
from chassis.telemetry.instruments import Telemetry
from chassis.telemetry.store_operations import Operation, PoolTelemetry, StoreTelemetry, sql_operation

log = structlog.get_logger()

ANSWER_WITHIN_SECONDS = 4  # how long to keep retrying a statement before giving up
_RETRY_SECONDS = 0.1
_CONNECTIONS = 8
_CLOSE_WITHIN_SECONDS = 1
# How long to try to connect to each server in the URL before trying the next. psycopg's minimum is 2.
_CONNECT_WITHIN_SECONDS = 2
# With this timeout, the server ends statements that this process has given up on and can no longer cancel.
_SETTINGS = f"SET synchronous_commit = on; SET statement_timeout = '{ANSWER_WITHIN_SECONDS}s'"
_BEGIN_POOLED = "BEGIN; " + _SETTINGS.replace("SET", "SET LOCAL")
# SQLSTATEs to retry. The classes mean that the server is starting, stopping or out of resources, or has aborted the
# transaction. 25006: after a failover, the connection is still to the old primary, which refuses writes. 0A000: a
# migration has changed a table that a prepared statement uses. 23505: a concurrent transaction has written the same
# unique value; the next attempt sees that row.
_TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
_TRANSIENT_STATES = frozenset({"25006", "0A000", "23505"})
# Keep the connection after these errors. Otherwise, while the disk is full, every attempt would open a new connection.
_LASTING_CLASSES = frozenset({"23", "40", "53"})
_PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")
_LISTED = re.compile(r"\bIN \((SELECT value->>'\w+' FROM json_each\(:\w+\))\)")


class Connection(psycopg.AsyncConnection[DictRow]):
    """A connection to a server, or to a pooler, which may run each transaction in a different session."""

    is_pooled: bool | None = None

    async def set_up(self) -> None:
        """Detect a pooler before the first statement: the process id that a pooler reports isn't the server's."""
        (row,) = await _rows(await send(self, "SELECT pg_backend_pid() AS id", {}))
        self.is_pooled = row["id"] != self.info.backend_pid
        if not self.is_pooled:
            await self.execute(_SETTINGS)
            self.prepare_threshold = 0  # prepare every statement when it first runs


class PostgresDatabase(Database):
    def __init__(self, url: str, telemetry: Telemetry, unavailable: Callable[[], Exception]) -> None:
        self._unavailable = unavailable
        self._store = store_telemetry(url, telemetry)
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            make_conninfo(url, connect_timeout=_CONNECT_WITHIN_SECONDS),
            connection_class=Connection,
            open=False,
            min_size=0,
            max_size=_CONNECTIONS,
            kwargs={"autocommit": True, "row_factory": dict_row, "prepare_threshold": None},
            reconnect_timeout=0,
            reconnect_failed=_reconnect,
        )
        self._waits = PoolTelemetry(telemetry, self._store.name, _CONNECTIONS, self.use)
        self._reports = asyncio.Semaphore()  # limits reports to one connection

    async def __aenter__(self) -> Self:
        await self._pool.open()  # doesn't connect yet: the first statement does
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=_CLOSE_WITHIN_SECONDS)

    async def write(self, *batch: Statement) -> Sequence[Sequence[DictRow]]:
        return await self._run(batch, ANSWER_WITHIN_SECONDS)

    async def read(
        self, text: str, parameters: Parameters, *, within_seconds: float | None = None
    ) -> Sequence[DictRow]:
        (rows,) = await self._run([(text, parameters)], within_seconds or ANSWER_WITHIN_SECONDS)
        return rows

    async def report(self, text: str, parameters: Parameters) -> Sequence[DictRow]:
        async with self._reports:
            return await self.read(text, parameters)

    def use(self) -> dict[str, int]:
        counts = self._pool.get_stats()
        return {"used": counts["pool_size"] - counts["pool_available"], "idle": counts["pool_available"]}

    async def _run(self, batch: Sequence[Statement], within_seconds: float) -> list[list[DictRow]]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + within_seconds
        while True:
            try:
                return await self._attempt(batch, deadline)
            except psycopg.Error as error:
                if not _is_transient(error):
                    # Don't log the error's text, which may quote values.
                    log.error("statement rejected", operation=_operation(batch).summary, sqlstate=error.sqlstate)  # noqa: TRY400
                    raise self._unavailable() from _without_values(error)
                problem = error
            except TimeoutError as error:
                # Replace the pool's connections: if the server has become unreachable, they would all time out, too.
                await self._pool.drain()
                raise self._unavailable() from error
            if clock() + _RETRY_SECONDS > deadline:
                raise self._unavailable() from problem
            await asyncio.sleep(_RETRY_SECONDS)

    async def _attempt(self, batch: Sequence[Statement], deadline: float) -> list[list[DictRow]]:
        loop = asyncio.get_running_loop()
        with self._waits.measure_wait():
            connection = await self._pool.getconn(deadline - loop.time())
        # Don't use asyncio.timeout: a cancelled psycopg call still waits for the server, until its socket is shut down.
        giving_up = loop.call_at(deadline, _hang_up, connection)
        try:
            with self._store.measure(_operation(batch)):
                try:
                    return await _execute(connection, batch)
                except psycopg.Error:
                    if loop.time() < deadline:
                        raise
                    raise TimeoutError from None
        except BaseException as error:
            is_lasting = isinstance(error, psycopg.Error) and (error.sqlstate or "")[:2] in _LASTING_CLASSES
            if not (is_lasting and connection.info.transaction_status == TransactionStatus.IDLE):
                await connection.close()  # after a failover, it may still be connected to the old primary
            raise
        finally:
            giving_up.cancel()
            await self._pool.putconn(connection)


def _operation(batch: Sequence[Statement]) -> Operation:
    return sql_operation(*dict.fromkeys(text for text, _ in batch))


async def _execute(connection: Connection, batch: Sequence[Statement]) -> list[list[DictRow]]:
    if connection.is_pooled is None:
        await connection.set_up()
    if connection.is_pooled:
        # Don't use a pipeline: PgBouncer would reserve a server session until this connection's next statement.
        await connection.execute(_BEGIN_POOLED)
        results = [await _rows(await send(connection, *statement)) for statement in batch]
        await connection.execute("COMMIT")
        return results
    if len(batch) == 1:
        return [await _rows(await send(connection, *batch[0]))]
    # A pipeline sends BEGIN, all statements and COMMIT in one round trip.
    async with connection.pipeline(), connection.transaction():
        cursors = [await send(connection, text, parameters) for text, parameters in batch]
    return [await _rows(cursor) for cursor in cursors]


async def send(connection: Connection, text: str, parameters: Parameters) -> psycopg.AsyncCursor[DictRow]:
    return await connection.execute(in_psycopgs_style(text), parameters, binary=True)


async def _rows(cursor: psycopg.AsyncCursor[DictRow]) -> list[DictRow]:
    return await cursor.fetchall() if cursor.description else []


@cache
def in_psycopgs_style(text: str) -> bytes:
    """Rewrite a statement in psycopg's parameter style, with arrays in place of subqueries that expand a list.

    PostgreSQL assumes that such a subquery returns 100 rows. So while the table is small, it plans a full scan, and a
    prepared statement keeps that plan as the table grows. For an array, PostgreSQL assumes only ten rows.
    """
    text = _LISTED.sub(r"= ANY(ARRAY(\1))", text)
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%")).encode()


async def _reconnect(pool: AsyncConnectionPool[Connection]) -> None:
    """Reconnect after a short pause. The pool's own pauses get longer, which would prolong an outage."""
    await asyncio.sleep(_RETRY_SECONDS)
    if pool.get_stats()["requests_waiting"]:
        await pool.check()  # opens a connection if there is none


def _hang_up(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


def _is_transient(error: psycopg.Error) -> bool:
    if error.sqlstate is None:  # the connection failed, or a value can't be sent (DataError)
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate[:2] in _TRANSIENT_CLASSES or error.sqlstate in _TRANSIENT_STATES


def _without_values(error: psycopg.Error) -> StatementRejected:
    """Return an error to raise in place of `error`, which may quote parameters or rows."""
    if isinstance(error, psycopg.DataError):
        return StatementRejected("a value cannot be converted or stored")
    return StatementRejected(f"{type(error).__name__}: {error.diag.message_primary or error}")


def store_telemetry(url: str, telemetry: Telemetry) -> StoreTelemetry:
    parameters = conninfo_to_dict(url)
    hosts, ports = str(parameters.get("host") or ""), str(parameters.get("port") or "")
    port = int(ports) if ports and "," not in hosts + ports else None
    return StoreTelemetry(telemetry, "postgresql", str(parameters.get("dbname") or ""), hosts or None, port)
