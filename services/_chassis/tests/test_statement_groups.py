import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import psycopg
import pytest

from chassis.sql import statement_groups
from chassis.sql.postgres import Postgres, open_postgres
from chassis.sql.postgres_connection import Record
from chassis.sql.statement_groups import StatementGroups
from shop_kit.serving import Recorded
from shop_kit.waiting import wait_until

CREATE = "CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT NOT NULL)"
INSERT = """
    INSERT INTO notes (id, text) VALUES (:id, :text) ON CONFLICT DO NOTHING
    RETURNING id, text, CAST(pg_current_xact_id() AS TEXT) AS transaction
"""
UPDATE = "UPDATE notes SET text = :text WHERE id = :id RETURNING id, text"


@pytest.fixture
async def server(postgres_url: str, recorded: Recorded) -> AsyncIterator[Postgres]:
    async with open_postgres(postgres_url, recorded.telemetry) as opened:
        await opened.fetch(CREATE, {})
        yield opened


@pytest.fixture
async def groups(server: Postgres) -> AsyncIterator[StatementGroups]:
    opened = StatementGroups(server, "id")
    yield opened
    await opened.close()


@contextmanager
def locked(url: str, key: str) -> Iterator[None]:
    """Hold a lock on a row, as a replica that has vanished within a transaction does."""
    with psycopg.connect(url) as other:
        other.execute("SELECT 1 FROM notes WHERE id = %s FOR UPDATE", [key])
        yield
        other.rollback()


async def insert_all(groups: StatementGroups, *keys: str) -> list[Record | None]:
    """Insert rows at the same time. The first one is a group of its own, during which the others arrive."""
    return await asyncio.gather(*(groups.fetch(INSERT, {"id": key, "text": f"of {key}"}) for key in keys))


async def keys_by_place(server: Postgres) -> list[str]:
    return [row["id"] for row in await server.fetch("SELECT id FROM notes ORDER BY ctid", {})]


async def test_statements_that_arrive_while_a_group_runs_are_one_transaction(groups: StatementGroups) -> None:
    first, *others = [row for row in await insert_all(groups, "a", "b", "c", "d") if row]
    assert [row["text"] for row in (first, *others)] == ["of a", "of b", "of c", "of d"]
    assert len({row["transaction"] for row in others}) == 1
    assert others[0]["transaction"] != first["transaction"]


async def test_a_statement_that_writes_nothing_returns_no_row(groups: StatementGroups) -> None:
    await insert_all(groups, "b")
    rows = await insert_all(groups, "a", "b", "c")
    assert [row and row["id"] for row in rows] == ["a", None, "c"]


async def test_of_several_statements_for_one_row_one_gets_the_row(groups: StatementGroups, server: Postgres) -> None:
    rows = await insert_all(groups, "a", "b", "b", "b", "c")
    assert [row and row["id"] for row in rows] == ["a", "b", None, None, "c"]
    assert len(await keys_by_place(server)) == 3


async def test_different_statements_are_run_apart(groups: StatementGroups, server: Postgres) -> None:
    await insert_all(groups, "a", "b")
    rows = await asyncio.gather(
        *(groups.fetch(text, {"id": key, "text": "new"}) for text, key in ((UPDATE, "a"), (INSERT, "c"), (UPDATE, "b")))
    )
    assert [row and (row["id"], row["text"]) for row in rows] == [("a", "new"), ("c", "new"), ("b", "new")]
    assert len(await keys_by_place(server)) == 3


async def test_rows_of_a_group_are_written_in_the_order_of_their_keys(
    groups: StatementGroups, server: Postgres
) -> None:
    await insert_all(groups, "first", "c", "a", "b")
    assert await keys_by_place(server) == ["first", "a", "b", "c"]


async def test_a_statement_that_fails_does_not_affect_the_others_of_its_group(
    groups: StatementGroups, server: Postgres
) -> None:
    values: list[dict[str, Any]] = [{"id": key, "text": None if key == "c" else "text"} for key in "abcd"]
    outcomes = await asyncio.gather(*(groups.fetch(INSERT, each) for each in values), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Record, Record, asyncpg.NotNullViolationError, Record]
    assert await keys_by_place(server) == ["a", "b", "d"]


async def test_a_statement_that_waits_for_a_lock_delays_later_ones_no_longer_than_it_should(
    groups: StatementGroups, postgres_url: str
) -> None:
    await insert_all(groups, "a", "b")
    with locked(postgres_url, "a"):
        blocked = asyncio.create_task(groups.fetch(UPDATE, {"id": "a", "text": "new"}))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        assert await groups.fetch(UPDATE, {"id": "b", "text": "new"})
        assert time.monotonic() - started < 2
        assert not blocked.done()
    row = await blocked
    assert row is not None
    assert row["text"] == "new"


async def test_a_group_whose_connection_is_lost_is_repeated(groups: StatementGroups, postgres_url: str) -> None:
    await insert_all(groups, "b")
    with locked(postgres_url, "b"):
        inserting = asyncio.gather(*(groups.fetch(UPDATE, {"id": key, "text": "new"}) for key in "abc"))
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            await wait_until(lambda: terminate_waiting(admin))
    rows = await inserting
    assert [row and row["text"] for row in rows] == [None, "new", None]


def terminate_waiting(admin: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """End the connections that wait for a lock. Return whether there was one."""
    return bool(
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchall()
    )


async def test_a_caller_is_told_in_time_that_the_server_does_not_answer(
    groups: StatementGroups, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_groups, "ANSWER_WITHIN_SECONDS", 0.3)
    await insert_all(groups, "a")
    with locked(postgres_url, "a"):
        updates = [groups.fetch(text, {"id": "a", "text": "new"}) for text in (UPDATE, f"{UPDATE}, 1")]
        started = time.monotonic()
        outcomes = await asyncio.gather(*updates, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [TimeoutError, TimeoutError]
        assert time.monotonic() - started < 0.6


async def test_a_statement_whose_caller_has_given_up_before_it_runs_is_left_out(
    groups: StatementGroups, server: Postgres, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await insert_all(groups, "a", "b")
    monkeypatch.setattr(statement_groups, "ANSWER_WITHIN_SECONDS", 0.3)
    with locked(postgres_url, "a"):
        # The first is a group of its own; the third runs after the second, which waits for the lock.
        calls = [(UPDATE, "b"), (UPDATE, "a"), (INSERT, "c")]
        fetching = (groups.fetch(text, {"id": key, "text": "new"}) for text, key in calls)
        outcomes = await asyncio.gather(*fetching, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Record, TimeoutError, TimeoutError]
    await wait_until(lambda: server._use().used == 0)
    await asyncio.sleep(0.1)
    assert set(await keys_by_place(server)) == {"a", "b"}


async def test_a_cancelled_caller_does_not_stop_the_others(groups: StatementGroups, postgres_url: str) -> None:
    await insert_all(groups, "a", "b", "c")
    with locked(postgres_url, "b"):
        updates = [asyncio.create_task(groups.fetch(UPDATE, {"id": key, "text": "new"})) for key in "abc"]
        first, cancelled, other = updates
        await first
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not other.done()
    assert await other


async def test_each_statement_is_a_span_of_its_callers_trace(recorded: Recorded, groups: StatementGroups) -> None:
    async def call(key: str) -> None:
        with recorded.telemetry.tracer.start_as_current_span(f"call {key}"):
            await groups.fetch(INSERT, {"id": key, "text": ""}, [INSERT, UPDATE])

    await asyncio.gather(*map(call, "abc"))
    spans = {span.context.span_id: span for span in recorded.spans() if span.context}
    statements = [span for span in spans.values() if span.name == "INSERT notes; UPDATE notes"]
    assert {spans[span.parent.span_id].name for span in statements if span.parent} == {"call a", "call b", "call c"}
    assert len(statements) == 3


async def test_a_group_whose_callers_are_gone_is_ended_on_the_server(
    groups: StatementGroups, server: Postgres, postgres_url: str
) -> None:
    await insert_all(groups, "a", "b")
    with locked(postgres_url, "a"):
        updates = [asyncio.create_task(groups.fetch(UPDATE, {"id": key, "text": "new"})) for key in "ab"]
        await wait_until(lambda: server._use().used == 2 or updates[1].done())
        for update in updates:
            update.cancel()
        await asyncio.gather(*updates, return_exceptions=True)
        await groups.close()
        assert server._use().used == 0
