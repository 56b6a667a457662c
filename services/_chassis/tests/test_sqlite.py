import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chassis.sql.database import NOW, Database, Statement, listed
from chassis.sql.opening import open_database
from chassis.sql.sqlite import connect
from shop_kit.waiting import wait_until

FULL = 2
CREATE = "CREATE TABLE numbers (number INTEGER)"
INSERT = ("INSERT INTO numbers VALUES (1)", dict[str, object]())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    async with open_database(f"sqlite:///{path}", unavailable=OSError) as opened:
        await opened.write((CREATE, {}))
        yield opened


@pytest.fixture
def another_process(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


async def test_what_has_returned_is_in_the_file_and_a_statement_that_fails_fails_no_other_of_its_commit(
    database: Database, another_process: sqlite3.Connection
) -> None:
    unknown = ("INSERT INTO missing VALUES (1)", dict[str, object]())
    results = await asyncio.gather(*map(database.write, [INSERT, unknown, INSERT]), return_exceptions=True)
    assert [type(result) for result in results] == [list, OSError, list]
    assert another_process.execute("SELECT count(*) FROM numbers").fetchone() == (2,)
    assert (await database.read("SELECT count(*) AS numbers FROM numbers", {}))[0]["numbers"] == 2


def test_a_commit_is_flushed_to_survive_a_crash_of_the_machine(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (FULL,)


def test_a_file_is_opened_while_another_process_creates_its_tables(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as another_process:
        another_process.execute("BEGIN IMMEDIATE")
        another_process.execute(CREATE)
        commit = threading.Timer(0.1, another_process.execute, ["COMMIT"])
        commit.start()
        with closing(connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (0,)
        commit.join()


async def test_a_lock_of_another_process_delays_the_write_but_not_the_event_loop(
    database: Database, another_process: sqlite3.Connection
) -> None:
    another_process.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(database.write(INSERT))
    assert await database.read("SELECT number FROM numbers", {}) == []
    assert not write.done()
    another_process.execute("ROLLBACK")
    assert await write == [[]]


async def test_a_file_that_stays_locked_fails_the_write(
    database: Database, another_process: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chassis.sql.sqlite.ANSWER_WITHIN_SECONDS", 0.1)
    another_process.execute("BEGIN IMMEDIATE")
    with pytest.raises(OSError, match="^$"):
        await database.write(INSERT)
    another_process.execute("ROLLBACK")
    await database.write(INSERT)


async def test_a_full_disk_fails_writes_and_loses_none(database: Database, another_process: sqlite3.Connection) -> None:
    ((row,),) = await database.write(("PRAGMA page_count", {}))
    await database.write((f"PRAGMA max_page_count = {row['page_count'] + 2}", {}))
    written = 0
    with pytest.raises(OSError, match="^$"):  # noqa: PT012 - any of the writes may fail first
        while written < 100_000:
            await database.write(*[INSERT] * 100)
            written += 100
    await database.write(("PRAGMA max_page_count = 1000000", {}))
    await database.write(INSERT)
    assert another_process.execute("SELECT count(*) FROM numbers").fetchone() == (written + 1,)
    assert another_process.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("method", ["read", "report"])
async def test_queries_write_nothing(database: Database, method: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - the test chose this error type
        await getattr(database, method)(*INSERT)


async def test_text_that_is_no_utf_8_is_replaced(database: Database) -> None:
    query: Statement = ("SELECT CAST(x'ff' AS TEXT) AS text", {})
    found = [await database.read(*query), await database.report(*query), *await database.write(query)]
    assert [rows[0]["text"] for rows in found] == ["\ufffd"] * 3


async def test_times_and_lists_are_written_as_on_postgresql(database: Database) -> None:
    query = """
        SELECT value->>'name' AS name, date_part('epoch', to_timestamp(:at)) AS at FROM json_each(:items)
        ORDER BY key FOR UPDATE SKIP LOCKED
    """
    rows = await database.read(query, {"at": 1_790_000_000.7, "items": listed([{"name": "a"}, {"name": "b"}])})
    assert [tuple(row[name] for name in ("name", "at")) for row in rows] == [("a", 1_790_000_000), ("b", 1_790_000_000)]


async def test_the_clock_has_a_resolution_below_a_millisecond(database: Database) -> None:
    times = [row["now"] for _ in range(50) for row in await database.read(f"SELECT {NOW} AS now", {})]
    assert sorted(set(times)) == times


async def test_reports_do_not_delay_other_queries(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def unix_time() -> float:
        if threading.current_thread().name.startswith("report"):
            may_end.wait(60)
        return 1.0

    monkeypatch.setattr(time, "time", unix_time)
    async with open_database(f"sqlite:///{path}", unavailable=OSError) as database:
        report = asyncio.create_task(database.report(f"SELECT {NOW} AS now", {}))
        async with asyncio.timeout(30):
            assert (await database.read(f"SELECT {NOW} AS now", {}))[0]["now"] == 1.0
        assert not report.done()
        may_end.set()
        await report


async def test_the_log_is_moved_into_the_file_beside_the_commits(path: Path, database: Database) -> None:
    before = path.stat().st_size  # noqa: ASYNC240 - takes no time
    for _ in range(100):
        await database.write(INSERT)
    assert await wait_until(lambda: path.stat().st_size > before)
