import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import psycopg
import pytest

from chassis.sql import database
from chassis.sql.postgres import Postgres, open_postgres
from chassis.sql.postgres_connection import Connection, ServerUnreachable, connect
from chassis.sql.url import PostgresUrl
from shop_kit.waiting import wait_until

SECRET = "4242424242424242"
CREATE = "CREATE TABLE notes (id INT PRIMARY KEY, text TEXT NOT NULL)"
INSERT = "INSERT INTO notes (id, text) VALUES (:id, :text)"
COUNT = "SELECT count(*) AS notes FROM notes"
ONE = "SELECT 1"
SLEEP = "SELECT pg_sleep(:seconds)"


@pytest.fixture
async def server(postgres_url: str) -> AsyncIterator[Postgres]:
    async with open_postgres(postgres_url) as opened:
        await opened.fetch(CREATE, {})
        yield opened


async def count(server: Postgres) -> int:
    (row,) = await server.fetch(COUNT, {})
    notes: int = row["notes"]
    return notes


async def test_values_are_bound_by_name(server: Postgres) -> None:
    await server.fetch("INSERT INTO notes (text, id) VALUES (:text, CAST(:id AS INT))", {"id": 7, "text": "seven"})
    (row,) = await server.fetch("SELECT text, id::text FROM notes WHERE id = :id OR id = :id", {"id": 7, "more": 8})
    assert tuple(row) == ("seven", "7")


async def test_a_transaction_returns_the_rows_of_each_statement(server: Postgres) -> None:
    inserting, counted = await server.transaction((INSERT, {"id": 1, "text": "one"}), (COUNT, {}))
    assert (inserting, [row["notes"] for row in counted]) == ([], [1])


async def test_a_transaction_that_fails_changes_nothing(server: Postgres) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        await server.transaction((INSERT, {"id": 1, "text": "one"}), (INSERT, {"id": 1, "text": "two"}))
    assert await count(server) == 0


async def test_a_statement_with_many_parameters_is_one_transaction(server: Postgres) -> None:
    values = [{"id": number, "text": "a"} for number in (1, 2, 3)]
    rows = await server.fetch_each(f"{INSERT} RETURNING id", values)
    assert [row["id"] for row in rows] == [1, 2, 3]
    with pytest.raises(asyncpg.UniqueViolationError):
        await server.fetch_each(INSERT, [{"id": 4, "text": "a"}, {"id": 1, "text": "a"}])
    assert await count(server) == 3


@pytest.mark.parametrize(
    "values", [{"id": 42424242, "text": None}, {"id": 2, "text": int(SECRET)}, {"id": int(SECRET), "text": ""}]
)
async def test_errors_do_not_quote_values(server: Postgres, values: dict[str, object]) -> None:
    await server.fetch(INSERT, {"id": 1, "text": ""})
    with pytest.raises(asyncpg.PostgresError) as failed:
        await server.fetch("INSERT INTO notes VALUES (:id, :text)", values)
    assert "42424242" not in repr(failed.value) + str(failed.value)
    assert await count(server) == 1


async def test_the_settings_of_a_url_reach_the_server(postgres_url: str) -> None:
    options = "application_name=ann&options=-c%20synchronous_commit%3Doff%20-c%20jit%3Doff&connect_timeout=5"
    query = " UNION ALL ".join(
        f"SELECT current_setting('{name}')" for name in ("application_name", "jit", "synchronous_commit")
    )
    async with open_postgres(f"{postgres_url}{'&' if '?' in postgres_url else '?'}{options}") as server:
        assert [value for (value,) in await server.fetch(query, {})] == ["ann", "off", "on"]


async def test_an_encrypted_connection_is_not_replaced_by_a_plain_one(postgres_url: str) -> None:
    async with relay_to(postgres_url) as relay:
        with pytest.raises(ServerUnreachable, match="rejected SSL upgrade"):
            await connect(PostgresUrl.parse(f"{relay.url}?sslmode=require"), timeout_seconds=5)


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
async def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    url = PostgresUrl.parse(f"postgresql://127.0.0.1/name?sslmode=verify-full&{name}={tmp_path}/missing")
    with pytest.raises(ServerUnreachable, match=f"^the file of the parameter {name} can't be read$"):
        await connect(url, timeout_seconds=5)


async def test_a_write_that_is_refused_as_read_only_is_repeated_on_a_new_connection(
    server: Postgres, postgres_url: str
) -> None:
    """As after a failover, when the old server still accepts connections."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        terminate_others(admin)
        writing = asyncio.create_task(server.fetch(INSERT, {"id": 1, "text": "one"}))
        await asyncio.sleep(0.3)
        assert not writing.done()
        admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await writing
    assert await count(server) == 1


async def test_a_transaction_whose_connection_is_lost_restarts_from_its_beginning(
    server: Postgres, postgres_url: str
) -> None:
    attempts = 0

    async def work(connection: Connection) -> None:
        nonlocal attempts
        attempts += 1
        await connection.execute("BEGIN")
        await connection.execute("INSERT INTO notes VALUES (1, 'one')")
        if attempts == 1:
            with psycopg.connect(postgres_url, autocommit=True) as admin:
                terminate_others(admin)
        await connection.execute("COMMIT")

    await server.run(work, INSERT)
    assert (attempts, await count(server)) == (2, 1)


def terminate_others(admin: psycopg.Connection[tuple[object, ...]]) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


async def test_a_statement_that_is_given_up_is_cancelled_on_the_server(server: Postgres, postgres_url: str) -> None:
    with pytest.raises(TimeoutError):
        await server.fetch(SLEEP, {"seconds": 60}, within_seconds=0.3)

    def is_idle() -> bool:
        with psycopg.connect(postgres_url) as admin:
            rows = admin.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND query LIKE '%pg_sleep%' AND state = 'active'"
            )
            return not rows.fetchall()

    await wait_until(is_idle)
    assert await count(server) == 0


async def test_a_statement_is_prepared_again_after_a_migration(server: Postgres, postgres_url: str) -> None:
    await server.fetch(INSERT, {"id": 1, "text": "one"})
    read: tuple[str, dict[str, object]] = ("SELECT id, text FROM notes", {})
    await server.transaction(read, read)
    with psycopg.connect(postgres_url) as admin:
        admin.execute("ALTER TABLE notes ALTER COLUMN id TYPE BIGINT, ALTER COLUMN text TYPE VARCHAR(10)")
    first, _ = await server.transaction(read, read)
    assert [tuple(row) for row in first] == [(1, "one")]


class Relay:
    """Forwards connections to a server until it is told to drop everything silently, as a machine that vanished."""

    def __init__(self, url: str) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(url)
        self._host, self._port = str(parts["host"]), int(parts.get("port") or 5432)
        self._login = f"{parts.get('user', 'postgres')}:{parts.get('password') or ''}"
        self._name = parts["dbname"]
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.vanished = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://{self._login}@127.0.0.1:{self.port}/{self._name}"

    def url_after(self, port: int) -> str:
        """Return a URL that names another server first."""
        return f"postgresql://{self._login}@127.0.0.1:{port},127.0.0.1:{self.port}/{self._name}"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._host.startswith("/"):
            upstream = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            upstream = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, upstream[1]]
        for source, target in ((reader, upstream[1]), (upstream[0], writer)):
            forwarding = asyncio.create_task(self._forward(source, target))
            self._tasks.add(forwarding)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if not self.vanished:
                    target.write(data)
        if not self.vanished:
            target.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def relay_to(url: str) -> AsyncIterator[Relay]:
    relay = Relay(url)
    listener = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listener.close()
        await relay.close()


async def test_a_server_that_vanishes_is_noticed_within_the_time_limit(postgres_url: str) -> None:
    async with relay_to(postgres_url) as relay:
        async with open_postgres(relay.url) as vanishing:
            await asyncio.gather(*(vanishing.fetch("SELECT pg_sleep(0.1)", {}) for _ in range(3)))
            relay.vanished = True
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                await vanishing.fetch(ONE, {}, within_seconds=1)
            assert time.monotonic() - started < 1.5
            relay.vanished = False  # the others of its connections have lost data
            assert await vanishing.fetch(ONE, {})
            relay.vanished = True
            with pytest.raises(TimeoutError):
                await vanishing.fetch(ONE, {}, within_seconds=0.2)
            started = time.monotonic()
        assert time.monotonic() - started < 3


async def test_a_server_that_never_answers_does_not_hide_the_next_one(postgres_url: str) -> None:
    async with relay_to(postgres_url) as silent, relay_to(postgres_url) as relay:
        silent.vanished = True
        async with open_postgres(relay.url_after(silent.port)) as found:
            assert await found.fetch(ONE, {})


@pytest.mark.parametrize(
    ("session", "accepted"), [("read-write", False), ("standby", False), ("primary", True), ("prefer-standby", True)]
)
async def test_only_the_kind_of_server_is_accepted_that_the_url_names(
    postgres_url: str, session: str, accepted: bool
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    url = PostgresUrl.parse(f"{postgres_url}{'&' if '?' in postgres_url else '?'}target_session_attrs={session}")
    if not accepted:
        with pytest.raises(ServerUnreachable):
            await connect(url, timeout_seconds=5)
        return
    connection = await connect(url, timeout_seconds=5)
    await connection.close()


def test_a_serving_process_imports_neither_psycopg_nor_sqlalchemy(postgres_url: str, tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "0001.py").write_text('revision = "1"\ndown_revision = None\ndef upgrade(): pass\n')
    database.migrate(postgres_url, tmp_path)
    program = f"""
import asyncio, json, sys
from pathlib import Path
from chassis.sql import database, postgres

async def main():
    database.validate_url({postgres_url!r})
    database.migrate({postgres_url!r}, Path({str(tmp_path)!r}))
    async with postgres.open_postgres({postgres_url!r}) as server:
        await server.fetch("SELECT 1", {{}})

asyncio.run(main())
print(json.dumps([name for name in sys.modules if name.startswith(("psycopg", "sqlalchemy", "alembic"))]))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []
