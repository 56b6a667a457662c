"""Streams tables as CSV (RFC 4180, UTF-8) in constant memory, with COPY on PostgreSQL and a cursor on SQLite.

A worker thread produces each chunk when the client is ready for it, so the event loop never waits for rows, and a slow
client ties up a cursor but no memory.
"""

import codecs
import csv
import io
import re
import sqlite3
from collections.abc import AsyncGenerator, Generator, Iterator
from functools import partial
from typing import Any, cast
from zoneinfo import ZoneInfo

import psycopg
from anyio import CancelScope, to_thread
from opentelemetry.trace import SpanKind, Tracer
from sqlalchemy import Connection, Engine, Select, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from chassis.telemetry import semconv
from employee_api.database import blocking_engine
from employee_api.errors import TooManyExports, UnknownTimeZone
from employee_api.exports.queries import Format, Table, export_query, zoned_timestamp

CHUNK_BYTES = 64 * 1024
_ROWS_PER_FETCH = 500
_INVALID_PARAMETER_VALUE = "22023"
_MAX_CONCURRENT_EXPORTS = 8
# Makes PostgreSQL read rows in index order, because sorting or hashing a million rows would delay the first byte.
_STREAMING_PLAN = "".join(
    f"SET LOCAL {way} = off;" for way in ("enable_sort", "enable_hashjoin", "enable_mergejoin", "jit")
)


class CsvExporter:
    """Exports tables over separate database connections, so that exports don't use up the pool."""

    def __init__(self, engine: AsyncEngine, tracer: Tracer, *, defuse_formulas: bool) -> None:
        self._engine = blocking_engine(engine)
        self._tracer = tracer
        self._defuse_formulas = defuse_formulas
        self.active = 0

    async def stream(
        self, table: Table, month: str | None, zone: ZoneInfo | None = None, *, bom: bool = False, separator: str = ","
    ) -> AsyncGenerator[bytes]:
        """Yield the file in chunks. `zone` is the time zone of `month` and of the timestamps in the file.

        The first chunk is empty, and arrives once the query has returned rows. Raise TooManyExports instead of the
        first chunk if too many exports are active. Reading any chunk can raise a database error.
        """
        if self.active >= _MAX_CONCURRENT_EXPORTS:
            raise TooManyExports
        query = export_query(table, month, Format(self._engine.dialect.name, self._defuse_formulas, zone))
        chunks = _chunks(self._engine, query, zone, codecs.BOM_UTF8 if bom else b"", separator)
        attributes = {
            semconv.DB_SYSTEM: self._engine.dialect.name,
            semconv.DB_OPERATION: "SELECT",
            semconv.DB_QUERY_SUMMARY: f"SELECT {table}",
        }
        span = self._tracer.start_span(f"export {table}", None, SpanKind.CLIENT, attributes)
        self.active += 1
        try:
            chunk = await to_thread.run_sync(next, chunks, None)
            yield b""
            while chunk is not None:
                yield chunk
                chunk = await to_thread.run_sync(next, chunks, None)
        finally:
            self.active -= 1
            span.end()
            with CancelScope(shield=True):  # end the query even if the client disconnects
                await to_thread.run_sync(chunks.close)


def copy_query(query: Select[Any]) -> str:
    """Return a query's SQL text for PostgreSQL with values inlined, because COPY accepts no parameters."""
    # Don't use the driver's dialect, which would double every percent sign.
    plain = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    return str(query.compile(dialect=plain, compile_kwargs={"literal_binds": True}))


def _chunks(engine: Engine, query: Select[Any], zone: ZoneInfo | None, bom: bytes, separator: str) -> Generator[bytes]:
    """Yield the file, starting with the header, in chunks of about CHUNK_BYTES."""
    read = _read_postgres if engine.dialect.name == "postgresql" else _read_sqlite
    chunk = bytearray(bom + separator.join(query.selected_columns.keys()).encode() + b"\r\n")
    with engine.connect() as connection:
        for rows in read(connection, query, zone, separator):
            chunk += rows
            if len(chunk) >= CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    yield bytes(chunk)


def _read_postgres(
    connection: Connection, query: Select[Any], zone: ZoneInfo | None, separator: str
) -> Iterator[bytes]:
    if zone is not None:
        _set_postgres_zone(connection, zone)
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    with driver.cursor() as cursor:
        cursor.execute(_STREAMING_PLAN)
        copy = f"COPY ({copy_query(query)}) TO STDOUT (FORMAT csv, DELIMITER '{separator}')"
        with cursor.copy(copy.encode()) as rows:
            for row in rows:
                yield bytes(row[:-1]) + b"\r\n"  # the server ends a row with LF, but RFC 4180 requires CRLF


def _set_postgres_zone(connection: Connection, zone: ZoneInfo) -> None:
    try:
        connection.execute(select(func.set_config("TimeZone", zone.key, True)))
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _INVALID_PARAMETER_VALUE:
            raise UnknownTimeZone from error
        raise


def _regexp_replace(text: str | None, pattern: str, replacement: str, _flags: str) -> str | None:
    """Replace all matches, as PostgreSQL does with the flag g."""
    return None if text is None else re.sub(pattern, replacement, text)


def _read_sqlite(connection: Connection, query: Select[Any], zone: ZoneInfo | None, separator: str) -> Iterator[bytes]:
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.create_function("regexp_replace", 4, _regexp_replace, deterministic=True)
    if zone is not None:
        driver.create_function("zoned_timestamp", 1, partial(zoned_timestamp, zone=zone), deterministic=True)
    result = connection.execution_options(yield_per=_ROWS_PER_FETCH).execute(query)
    for rows in result.partitions():
        buffer = io.StringIO(newline="")
        csv.writer(buffer, delimiter=separator).writerows(rows)
        yield buffer.getvalue().encode()
