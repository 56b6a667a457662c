import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from chassis.cache import TtlCache
from chassis.sql.database import Database
from chassis.sql.group_commit import GroupCommit
from chassis.sql.postgres import PostgresDatabase
from chassis.sql.sqlite import SqliteDatabase
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes
from chassis.telemetry.store_operations import record_wait, sql_operation
from shop_kit.clock import Clock
from shop_kit.serving import Recorded
from shop_kit.waiting import PATIENCE_SECONDS, wait_until

SECRET = "4242424242424242"
CREATE = "CREATE TABLE notes (id SERIAL PRIMARY KEY, text TEXT)"
INSERT = "INSERT INTO notes (text) VALUES (:text)"


@pytest.fixture
async def postgres(recorded: Recorded, postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(CREATE)
    port = psycopg.conninfo.conninfo_to_dict(postgres_url).get("port") or 5432
    url = psycopg.conninfo.make_conninfo(postgres_url, port=port)
    async with PostgresDatabase(url, recorded.telemetry, OSError) as server:
        yield server


async def insert(database: Database) -> None:
    await database.write((INSERT, {"text": SECRET}))


def sampled_call(recorded: Recorded) -> AbstractContextManager[Span]:
    return recorded.telemetry.tracer.start_as_current_span("call")


def children(recorded: Recorded, parent: Span) -> list[ReadableSpan]:
    return [
        span
        for span in recorded.spans()
        if span.parent is not None and span.parent.span_id == parent.get_span_context().span_id
    ]


def durations(recorded: Recorded) -> dict[Attributes, int]:
    series = recorded.telemetry.histogram(semconv.DB_CLIENT_DURATION).series
    return {labels: sum(each.counts) for labels, each in series.items()}


@pytest.mark.parametrize(
    ("texts", "name", "summary"),
    [
        (["SELECT a FROM notes WHERE b = :b"], "SELECT", "SELECT notes"),
        (["SELECT extract(EPOCH FROM at) FROM notes FOR UPDATE"], "SELECT", "SELECT notes"),
        (['insert into "user" (a) VALUES (:a) ON CONFLICT DO UPDATE SET a = 1'], "INSERT", "INSERT user"),
        (["WITH due AS (SELECT id FROM notes) UPDATE letters SET a = 1 WHERE id IN (SELECT id FROM due)"],
         "UPDATE", "UPDATE letters"),
        (["DELETE FROM notes WHERE id IN (SELECT id FROM other)"], "DELETE", "DELETE notes"),
        (["SELECT count(*) FROM (SELECT 1 FROM notes LIMIT 5) AS ahead"], "SELECT", "SELECT notes"),
        (["BEGIN IMMEDIATE"], "BEGIN", "BEGIN"),
        (["INSERT INTO notes VALUES (1)", "INSERT INTO events VALUES (1)"],
         "BATCH INSERT", "INSERT notes; INSERT events"),
        (["INSERT INTO notes VALUES (1)", "DELETE FROM events"], "BATCH", "INSERT notes; DELETE events"),
    ],
)  # fmt: skip
def test_statements_are_described_by_operation_and_table(texts: Sequence[str], name: str, summary: str) -> None:
    described = sql_operation(*texts)
    assert (described.name, described.summary, described.batch_size) == (name, summary, len(texts))


async def test_a_statement_on_postgresql_is_a_client_span_below_its_call(
    recorded: Recorded, postgres: PostgresDatabase, postgres_url: str
) -> None:
    with sampled_call(recorded) as call:
        await insert(postgres)
    (span,) = [span for span in children(recorded, call) if span.kind is SpanKind.CLIENT]
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    assert (span.name, span.status.status_code) == ("INSERT notes", StatusCode.UNSET)
    assert dict(span.attributes or {}) == {
        "db.system.name": "postgresql",
        "db.namespace": parts["dbname"],
        "db.operation.name": "INSERT",
        "db.query.summary": "INSERT notes",
        "server.address": parts["host"],
        "server.port": int(parts.get("port") or 5432),
    }
    assert durations(recorded) == {(("db.system.name", "postgresql"), ("db.operation.name", "INSERT")): 1}


async def test_a_failed_statement_says_why_without_its_values(recorded: Recorded, postgres: PostgresDatabase) -> None:
    with sampled_call(recorded) as call, pytest.raises(OSError):  # noqa: PT011 - the test chose this error type
        await postgres.write(("INSERT INTO notes (id) VALUES (:id)", {"id": None}))
    (span,) = [span for span in children(recorded, call) if span.kind is SpanKind.CLIENT]
    attributes = span.attributes or {}
    assert (attributes["error.type"], attributes["db.response.status_code"]) == ("NotNullViolation", "23502")
    assert (span.status.status_code, span.status.description, len(span.events)) == (StatusCode.ERROR, None, 0)
    with pytest.raises(OSError):  # noqa: PT011 - the test chose this error type
        await postgres.read("SELECT pg_sleep(60)", {}, within_seconds=0.3)
    assert [dict(labels)["error.type"] for labels in durations(recorded)] == ["NotNullViolation", "TimeoutError"]


async def test_a_server_that_is_down_is_a_failed_wait_for_a_connection(recorded: Recorded) -> None:
    async with PostgresDatabase("postgresql://127.0.0.1:1/none", recorded.telemetry, OSError) as server:
        with sampled_call(recorded) as call, pytest.raises(OSError):  # noqa: PT011 - the test chose this error type
            await server.read("SELECT 1", {}, within_seconds=0.2)
    spans = children(recorded, call)
    assert {(span.name, span.kind) for span in spans} == {("pool.wait", SpanKind.INTERNAL)}
    assert all("error.type" in (span.attributes or {}) for span in spans)
    assert durations(recorded) == {}


async def test_a_wait_for_a_connection_is_a_span_before_that_of_the_statement(
    recorded: Recorded, postgres: PostgresDatabase
) -> None:
    connections = [await postgres._pool.getconn(PATIENCE_SECONDS) for _ in range(8)]
    assert postgres.use() == {"used": 8, "idle": 0}
    with sampled_call(recorded) as call:
        waiting = asyncio.create_task(insert(postgres))
        await wait_until(lambda: postgres._waits.waiting)
        await asyncio.sleep(0.01)  # a wait of less than a millisecond gets no span
        await asyncio.gather(*map(postgres._pool.putconn, connections))
        await waiting
    wait, statement = sorted(children(recorded, call), key=lambda span: span.start_time or 0)
    assert (wait.name, statement.name) == ("pool.wait", "INSERT notes")
    assert (wait.end_time or 0) - (wait.start_time or 0) > 9_000_000


@pytest.mark.parametrize(("seconds", "expected"), [(0.0009, []), (0.0011, ["pool.wait"])])
def test_only_a_wait_of_over_a_millisecond_is_a_span(recorded: Recorded, seconds: float, expected: list[str]) -> None:
    with sampled_call(recorded) as call:
        record_wait(recorded.telemetry.tracer, "pool.wait", 5.0, 5.0 + seconds)
    assert [span.name for span in children(recorded, call)] == expected


async def test_statements_outside_of_a_sampled_trace_are_counted_but_no_spans(
    recorded: Recorded, postgres: PostgresDatabase
) -> None:
    await insert(postgres)
    with trace.use_span(NonRecordingSpan(SpanContext(7, 8, True, TraceFlags(TraceFlags.DEFAULT)))):
        await insert(postgres)
    assert recorded.spans() == []
    assert list(durations(recorded).values()) == [2]


async def test_a_transaction_on_sqlite_is_a_span(recorded: Recorded, tmp_path: Path) -> None:
    async with SqliteDatabase(tmp_path / "notes.db", recorded.telemetry, OSError) as database:
        with sampled_call(recorded) as failed, pytest.raises(OSError):  # noqa: PT011 - the test chose this error type
            await insert(database)
        await database.write(("CREATE TABLE notes (text TEXT)", {}))
        with sampled_call(recorded) as call:
            await insert(database)
    (statement,) = children(recorded, call)
    assert dict(statement.attributes or {}) == {
        "db.system.name": "sqlite",
        "db.namespace": "notes.db",
        "db.operation.name": "INSERT",
        "db.query.summary": "INSERT notes",
    }
    assert not [span for span in recorded.spans() if SECRET in span.to_json()]
    (rejected,) = children(recorded, failed)
    assert (rejected.attributes or {})["error.type"] == "SQLITE_ERROR"


async def test_flushes_are_counted_with_their_batch_sizes(recorded: Recorded) -> None:
    commits: GroupCommit[int, int] = GroupCommit(lambda batch, _: batch, "numbers", recorded.telemetry)
    await asyncio.gather(*(commits.run(number) for number in range(5)))
    await commits.close()
    (size,) = recorded.telemetry.histogram(semconv.FLUSH_SIZE).series.items()
    (labels, duration) = next(iter(recorded.telemetry.histogram(semconv.FLUSH_DURATION).series.items()))
    assert (size[0], size[1].total) == ((("shop.flush.store", "numbers"),), 5)
    assert (labels, sum(duration.counts)) == ((("shop.flush.store", "numbers"),), 1)


async def test_lookups_of_a_cache_are_counted_by_result(recorded: Recorded, clock: Clock) -> None:
    async def fetch(key: str) -> str:
        return key

    cache = TtlCache(fetch, 10, "letters", recorded.telemetry, serve_stale=True, clock=clock)
    await cache.get("a", "b")
    await cache.get("a")
    clock.seconds += 11
    await cache.get("a")
    counts = recorded.telemetry.counter(semconv.CACHE_LOOKUPS).values
    expected = {"miss": 2, "hit": 1, "stale": 1}
    assert {tuple(dict(labels).values()): value for labels, value in counts.items()} == {
        ("letters", result): count for result, count in expected.items()
    }
