"""Tables as CSV (RFC 4180, UTF-8) of any length at constant memory: COPY on PostgreSQL, a cursor on SQLite.

Rows are read and written in a worker thread, a chunk each time the caller is ready for one: the event loop never waits
for a row, and a slow caller holds a cursor, not memory.
"""

import csv
import io
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Any, cast

from anyio import CancelScope, to_thread
from opentelemetry.trace import SpanKind, Tracer
from sqlalchemy import Connection, Engine, Select, create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import NullPool

from employee_api.csv_queries import Kind, export_query
from employee_api.errors import TooManyExports

if TYPE_CHECKING:
    from psycopg import Connection as PostgresConnection

CHUNK_BYTES = 64 * 1024
_ROWS_A_FETCH = 500
_MOST_AT_ONCE = 8
# The order comes from an index, row by row: to sort or hash a million rows first would keep the caller waiting.
_STREAMING_PLAN = "".join(
    f"SET LOCAL {way} = off;" for way in ("enable_sort", "enable_hashjoin", "enable_mergejoin", "jit")
)


class Exports:
    """Exports under way; they have database connections of their own, so they take none from other requests.

    `running` counts those whose callers have not yet got everything.
    """

    def __init__(self, engine: AsyncEngine, tracer: Tracer, *, defuse: bool) -> None:
        self._engine = _blocking_twin(engine)
        self._tracer = tracer
        self._defuse = defuse
        self.running = 0

    async def stream(self, kind: Kind, month: str | None) -> AsyncGenerator[bytes]:
        """Yield the file in chunks. Raises TooManyExports before the first one, the database's own errors at any."""
        if self.running >= _MOST_AT_ONCE:
            raise TooManyExports
        chunks = _chunks(self._engine, export_query(kind, month, defuse=self._defuse))
        span = self._tracer.start_span(f"export {kind}", kind=SpanKind.CLIENT)
        self.running += 1
        try:
            while (chunk := await to_thread.run_sync(next, chunks, None)) is not None:
                yield chunk
        finally:
            self.running -= 1
            span.end()
            with CancelScope(shield=True):  # a caller who goes away must not leave the query running
                await to_thread.run_sync(chunks.close)


def postgres_text(query: Select[Any]) -> str:
    """Write a query as text with its values in it: COPY takes no parameters."""
    # Not the driver's own dialect, which would double every percent sign.
    plain = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    return str(query.compile(dialect=plain, compile_kwargs={"literal_binds": True}))


def _blocking_twin(engine: AsyncEngine) -> Engine:
    url = engine.url if engine.dialect.name == "postgresql" else engine.url.set(drivername="sqlite")
    return create_engine(url, poolclass=NullPool)


def _chunks(engine: Engine, query: Select[Any]) -> Generator[bytes]:
    """Cut the file into chunks of about CHUNK_BYTES, the header first."""
    write_rows = _postgres_rows if engine.dialect.name == "postgresql" else _sqlite_rows
    chunk = bytearray(",".join(query.selected_columns.keys()).encode() + b"\r\n")
    with engine.connect() as connection:
        for _ in write_rows(connection, query, chunk):
            if len(chunk) >= CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
    yield bytes(chunk)


def _postgres_rows(connection: Connection, query: Select[Any], chunk: bytearray) -> Iterator[None]:
    """Append row after row as the server has written it, which ends each with LF where RFC 4180 wants CRLF."""
    driver = cast("PostgresConnection", connection.connection.driver_connection)
    with driver.cursor() as cursor:
        cursor.execute(_STREAMING_PLAN)
        with cursor.copy(f"COPY ({postgres_text(query)}) TO STDOUT (FORMAT csv)".encode()) as rows:
            for row in rows:
                chunk += row[:-1]
                chunk += b"\r\n"
                yield


def _sqlite_rows(connection: Connection, query: Select[Any], chunk: bytearray) -> Iterator[None]:
    """Append some rows at a time."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    result = connection.execution_options(yield_per=_ROWS_A_FETCH).execute(query)
    for rows in result.partitions():
        writer.writerows(rows)
        chunk += buffer.getvalue().encode()
        buffer.seek(0)
        buffer.truncate()
        yield
