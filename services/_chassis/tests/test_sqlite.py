import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chassis.sql import group_commit
from chassis.sql.sqlite import ANSWER_WITHIN_SECONDS, SqliteWriter, connect
from shop_kit.waiting import wait_until

CREATE = "CREATE TABLE numbers (number INTEGER)"
INSERT = "INSERT INTO numbers VALUES (1)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows.db"


@pytest.fixture
def another_process(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def insert(connection: sqlite3.Connection) -> int:
    return connection.execute(INSERT).rowcount


async def test_what_has_returned_is_in_the_file(path: Path, another_process: sqlite3.Connection) -> None:
    writer = SqliteWriter(path)
    await writer.run(lambda connection: connection.execute(CREATE), CREATE)
    await asyncio.gather(writer.run(insert, INSERT), writer.run(insert, INSERT))
    assert another_process.execute("SELECT count(*) FROM numbers").fetchone() == (2,)
    await writer.close()


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
    path: Path, another_process: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "QUICK_SECONDS", float("inf"))
    writer = SqliteWriter(path)
    await writer.run(lambda connection: connection.execute(CREATE), CREATE)
    another_process.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    write = asyncio.create_task(writer.run(insert, INSERT, brief=True))
    for _ in range(5):
        await asyncio.sleep(0)
    assert time.monotonic() - started < ANSWER_WITHIN_SECONDS / 2
    assert not write.done()
    another_process.execute("ROLLBACK")
    assert await write == 1
    await writer.close()


async def test_only_brief_work_is_done_on_the_event_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "QUICK_SECONDS", float("inf"))
    writer = SqliteWriter(path)
    threads = [
        await writer.run(lambda _: threading.current_thread().name, "SELECT 1", brief=brief) for brief in (True, False)
    ]
    await writer.close()
    assert threads == ["MainThread", "commit"]


async def test_the_log_is_moved_into_the_file_beside_the_commits(path: Path) -> None:
    writer = SqliteWriter(path)
    await writer.run(lambda connection: connection.execute(CREATE), CREATE)
    before = size_of(path)
    for _ in range(100):
        await writer.run(insert, INSERT)
    await wait_until(lambda: size_of(path) > before)
    await writer.close()


def size_of(path: Path) -> int:
    return path.stat().st_size
