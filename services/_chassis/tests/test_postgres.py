import asyncio
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from typing_extensions import override

from chassis.sql.database import Database, Statement, is_rejected
from chassis.sql.migrate import STORED_REVISION, migrate
from chassis.sql.opening import open_database
from chassis.sql.postgres import ANSWER_WITHIN_SECONDS
from chassis.sql.url import DatabaseUnusable
from shop_kit.databases import execute
from shop_kit.postgres_relay import Peer, Relay, TransactionPooler
from shop_kit.waiting import wait_until

SECRET = "4242424242424242"
CREATE = "CREATE TABLE notes (id INT PRIMARY KEY, text TEXT NOT NULL)"
INSERT = "INSERT INTO notes (id, text) VALUES (:id, :text)"
COUNT = "SELECT count(*) AS notes FROM notes"
SESSION = "SELECT pg_backend_pid() AS session"
FULL_TWICE = """CREATE FUNCTION extend_notes() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN IF nextval(''tries'') % 3 > 0 THEN RAISE EXCEPTION USING ERRCODE = ''disk_full''; END IF; RETURN NEW; END'"""
PREPARED = "SELECT count(*) AS statements FROM pg_prepared_statements"
SETTINGS = "SELECT current_setting('synchronous_commit') AS flushed, current_setting('statement_timeout') AS timeout"
ONE = "SELECT 1 AS one"
SLEEP = "SELECT pg_sleep(:seconds)"


class Unavailable(Exception):
    pass


def opened(url: str, options: str = "") -> AbstractAsyncContextManager[Database]:
    return open_database(f"{url}{'&' if '?' in url else '?'}{options}" if options else url, unavailable=Unavailable)


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def set_by_default(admin: psycopg.Connection, setting: str) -> None:
    """Change a setting for all future sessions."""
    admin.execute(f"ALTER DATABASE {admin.info.dbname} SET {setting}")


@pytest.fixture
async def server(postgres_url: str) -> AsyncIterator[Database]:
    async with opened(postgres_url) as database:
        await database.write((CREATE, {}))
        yield database


async def count(server: Database) -> int:
    (row,) = await server.read(COUNT, {})
    notes: int = row["notes"]
    return notes


async def test_values_are_bound_by_name(server: Database) -> None:
    insert = "INSERT INTO notes (text, id) VALUES (:text, CAST(:id AS INT))"
    await server.write((insert, {"id": 7, "text": "100 % of :seven"}))
    query = "SELECT text, id::text AS id FROM notes WHERE id = :id OR id = :id AND text LIKE '%'"
    assert await server.read(query, {"id": 7, "more": 8}) == [{"text": "100 % of :seven", "id": "7"}]


async def test_a_transaction_returns_the_rows_of_each_statement_or_changes_nothing(server: Database) -> None:
    inserted, counted = await server.write((INSERT, {"id": 1, "text": "one"}), (COUNT, {}))
    assert (inserted, counted) == ([], [{"notes": 1}])
    with pytest.raises(Unavailable):
        await server.write((INSERT, {"id": 2, "text": "two"}), (INSERT, {"id": 3, "text": None}))
    assert await count(server) == 1


async def test_a_unique_value_of_a_concurrent_transaction_is_seen_by_the_next_try(server: Database) -> None:
    insert_new = "INSERT INTO notes SELECT 1, 'one' WHERE NOT EXISTS (SELECT 1 FROM notes WHERE id = 1) RETURNING id"
    statement: Statement = (insert_new, {})
    first, second = await asyncio.gather(server.write(statement, (SLEEP, {"seconds": 0.2})), server.write(statement))
    assert sorted([len(first[0]), len(second[0])]) == [0, 1]


@pytest.mark.parametrize(
    "values", [{"id": 42424242, "text": None}, {"id": "42424242x", "text": ""}, {"id": int(SECRET), "text": ""}]
)
async def test_errors_do_not_quote_values(server: Database, values: dict[str, object]) -> None:
    with pytest.raises(Unavailable) as failed:
        await server.write((INSERT, values))
    assert is_rejected(failed.value)
    assert "42424242" not in "".join(traceback.format_exception(failed.value))
    assert await count(server) == 0


async def test_the_settings_of_a_url_reach_the_server(postgres_url: str) -> None:
    options = "application_name=ann&options=-c%20synchronous_commit%3Doff%20-c%20jit%3Doff&connect_timeout=5"
    expected = {"application_name": "ann", "jit": "off", "synchronous_commit": "on"}
    async with opened(postgres_url, options) as server:
        found = [await server.read(f"SELECT current_setting('{name}') AS {name}", {}) for name in expected]
    assert found == [[{name: value}] for name, value in expected.items()]


async def test_statements_run_in_any_session_of_a_pooler_and_leave_nothing_behind(
    postgres_url: str, admin: psycopg.Connection
) -> None:
    set_by_default(admin, "synchronous_commit = off")
    async with TransactionPooler(postgres_url) as pooler:
        async with opened(pooler.url()) as server:
            await server.write((CREATE, {}))
            inserts: list[Statement] = [(INSERT, {"id": number, "text": "one"}) for number in range(160)]
            written = await asyncio.gather(*(server.write(insert, (SETTINGS, {})) for insert in inserts))
            read = await asyncio.gather(*(server.read(SETTINGS, {}) for _ in range(160)))
            assert await count(server) == 160
        expected = [{"flushed": "on", "timeout": f"{ANSWER_WITHIN_SECONDS}s"}]
        assert [rows for rows in [*(rows for _, rows in written), *read] if rows != expected] == []
        assert pooler.idle.qsize() > 1
        async with await psycopg.AsyncConnection.connect(pooler.url(), autocommit=True, prepare_threshold=None) as peer:
            for _ in range(pooler.idle.qsize()):
                assert await (await peer.execute(SETTINGS)).fetchone() == ("off", "0")
                assert await (await peer.execute(PREPARED)).fetchone() == (0,)


async def test_an_encrypted_connection_is_not_replaced_by_a_plain_one(postgres_url: str, tmp_path: Path) -> None:
    async with UnreliableRelay(postgres_url) as relay:
        with pytest.raises(DatabaseUnusable, match="server does not support SSL"):
            await asyncio.to_thread(migrate, f"{relay.url()}?sslmode=require", tmp_path, connect_seconds=0)


async def test_migrating_waits_for_a_server_that_is_starting(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "0001.py").write_text('revision = "1"\ndown_revision = None\ndef upgrade(): pass\n')
    async with UnreliableRelay(postgres_url) as relay:
        relay.refusing = True
        migrating = asyncio.create_task(asyncio.to_thread(migrate, relay.url(), tmp_path))
        await wait_until(lambda: relay.refused)
        relay.refusing = False
        await migrating
    assert execute(postgres_url, STORED_REVISION) == [("1",)]


async def test_a_write_that_is_refused_as_read_only_is_repeated_on_a_new_connection(
    server: Database, admin: psycopg.Connection
) -> None:
    # After a failover, the old server may still accept connections but refuse writes.
    set_by_default(admin, "default_transaction_read_only = on")
    terminate_others(admin)
    writing = asyncio.create_task(server.write((INSERT, {"id": 1, "text": "one"})))
    await asyncio.sleep(0.3)
    assert not writing.done()
    set_by_default(admin, "default_transaction_read_only = off")
    await writing
    assert await count(server) == 1


async def test_a_full_disk_costs_no_new_connection_for_every_try(server: Database) -> None:
    trigger = "CREATE TRIGGER extend_notes BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION extend_notes()"
    await server.write(("CREATE SEQUENCE tries", {}), (FULL_TWICE, {}), (trigger, {}))
    before = await server.read(SESSION, {})
    await server.write((INSERT, {"id": 1, "text": "one"}))
    await server.write((INSERT, {"id": 2, "text": "two"}), (COUNT, {}))
    assert await server.read("SELECT last_value AS tries FROM tries", {}) == [{"tries": 6}]
    assert await server.read(SESSION, {}) == before


async def test_a_transaction_whose_connection_is_lost_restarts_from_its_beginning(
    server: Database, admin: psycopg.Connection
) -> None:
    writing = asyncio.create_task(server.write((INSERT, {"id": 1, "text": "one"}), (SLEEP, {"seconds": 0.5})))
    assert await wait_until(lambda: sleeping(admin))
    terminate_others(admin)
    await writing
    assert await count(server) == 1


def sleeping(admin: psycopg.Connection) -> list[tuple[object, ...]]:
    return admin.execute(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query LIKE '%pg_sleep%' AND state = 'active'"
    ).fetchall()


def terminate_others(admin: psycopg.Connection) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_a_statement_that_is_given_up_or_cancelled_ends_on_the_server(
    server: Database, admin: psycopg.Connection
) -> None:
    with pytest.raises(Unavailable):
        await server.read(SLEEP, {"seconds": 60}, within_seconds=0.3)
    assert await wait_until(lambda: not sleeping(admin))
    assert await count(server) == 0
    reading = asyncio.create_task(server.read(SLEEP, {"seconds": 3}))
    assert await wait_until(lambda: sleeping(admin))
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    assert not sleeping(admin)


async def test_a_statement_is_prepared_without_a_pooler_and_again_after_a_migration(
    server: Database, admin: psycopg.Connection
) -> None:
    await server.write((INSERT, {"id": 1, "text": "one"}))
    read: tuple[str, dict[str, object]] = ("SELECT id, text FROM notes", {})
    await server.write(read, read)
    prepared = await server.read("SELECT statement FROM pg_prepared_statements", {})
    assert "SELECT id, text FROM notes" in {row["statement"] for row in prepared}
    admin.execute("ALTER TABLE notes ALTER COLUMN id TYPE BIGINT, ALTER COLUMN text TYPE VARCHAR(10)")
    first, _ = await server.write(read, read)
    assert first == [{"id": 1, "text": "one"}]


@dataclass(eq=False)
class UnreliableRelay(Relay):
    """A relay that can refuse connections, or drop all data silently, like an unreachable machine."""

    vanished: bool = False
    refusing: bool = False
    refused: int = 0

    @override
    async def serve(self, client: Peer) -> None:
        if self.refusing:
            self.refused += 1
            client.writer.close()
            return
        server = await self.connect()
        await asyncio.gather(self._forward(client.reader, server.writer), self._forward(server.reader, client.writer))

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not self.vanished:
                    target.write(data)
        if not self.vanished:
            target.close()


async def test_a_server_that_vanishes_is_noticed_within_the_time_limit(postgres_url: str) -> None:
    # TCP alone would retry for a quarter of an hour.
    async with UnreliableRelay(postgres_url) as relay, asyncio.timeout(90), opened(relay.url()) as vanishing:
        await asyncio.gather(*(vanishing.read("SELECT pg_sleep(0.1)", {}) for _ in range(3)))
        relay.vanished = True
        with pytest.raises(Unavailable):
            await vanishing.read(ONE, {}, within_seconds=1)
        relay.vanished = False  # the pool's other connections have lost data
        assert await vanishing.read(ONE, {})
        relay.vanished = True
        with pytest.raises(Unavailable):
            await vanishing.read(ONE, {}, within_seconds=0.2)


async def test_a_server_that_never_answers_does_not_hide_the_next_one(postgres_url: str) -> None:
    async with UnreliableRelay(postgres_url) as silent, UnreliableRelay(postgres_url) as relay:
        silent.vanished = True
        async with opened(relay.url(silent.port)) as found:
            assert await found.read(ONE, {})


async def test_a_server_that_is_back_is_noticed_at_once(postgres_url: str) -> None:
    async with UnreliableRelay(postgres_url) as relay, opened(relay.url()) as server:
        relay.refusing = True
        for _ in range(2):
            with pytest.raises(Unavailable):
                await server.read(ONE, {}, within_seconds=1.5)
        reading = asyncio.create_task(server.read(ONE, {}))
        await asyncio.sleep(1)
        relay.refusing = False
        assert await reading  # the pool itself would reconnect only after the statement's time limit


@pytest.mark.parametrize(
    ("session", "accepted"), [("read-write", False), ("standby", False), ("primary", True), ("prefer-standby", True)]
)
async def test_only_the_kind_of_server_is_accepted_that_the_url_names(
    postgres_url: str, admin: psycopg.Connection, session: str, accepted: bool
) -> None:
    set_by_default(admin, "default_transaction_read_only = on")
    async with opened(postgres_url, f"target_session_attrs={session}") as server:
        if accepted:
            assert await server.read(ONE, {})
        else:
            with pytest.raises(Unavailable):
                await server.read(ONE, {}, within_seconds=0.5)
