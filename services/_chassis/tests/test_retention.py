"""Tests of the deletion of old rows from SQLite and PostgreSQL databases, whose clocks may jump."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Unavailable
from chassis.sql import retention
from chassis.sql.database import Database
from chassis.sql.migrate import migrate
from chassis.sql.opening import open_database
from chassis.sql.retention import Deletions, read_clock
from chassis.telemetry.instruments import Telemetry
from shop_kit.databases import execute
from shop_kit.metrics import measured
from shop_kit.waiting import wait_until

DAY = 86_400
TABLE: dict[str, Any] = {"name": "rows", "key": "id", "old": "", "delete": ()}
MIGRATIONS = (
    """
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

def upgrade():
    op.create_table("records", sa.Column("at", sa.{type}), sa.Column("id", sa.Integer, primary_key=True))
""",
    """
import sqlalchemy as sa
from chassis.sql import retention_table

revision = "0002"
down_revision = "0001"

def upgrade():
    retention_table.create("records", sa.column("at", sa.{type}))
""",
)


def add_migration(folder: Path, number: int, column: str = "Double") -> Path:
    (folder / "versions").mkdir(exist_ok=True)
    (folder / "versions" / f"{number}.py").write_text(MIGRATIONS[number].format(type=column))
    return folder


class Rows(Deletions):
    """A store with 1,000 old rows. It is unavailable for the first `failures` calls."""

    def __init__(self, database: Database, *, failures: int = 0) -> None:
        super().__init__(database, **TABLE)
        self.rows = 1_000
        self.failures = failures
        self.times: set[float] = set()

    async def delete_old(self, older_than: float, limit: int) -> int:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the store does not answer")
        self.times.add(older_than)
        deleted = min(limit, self.rows)
        self.rows -= deleted
        return deleted


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(retention, "_TURN_SECONDS", 0.01)


@pytest.fixture
async def deletions(database_url: str, tmp_path: Path) -> AsyncIterator[Deletions]:
    add_migration(tmp_path, 0)
    migrate(database_url, add_migration(tmp_path, 1))
    async with open_database(database_url, unavailable=lambda: Unavailable("the database does not answer")) as database:
        yield Deletions(database, **TABLE)


@asynccontextmanager
async def running(rows: Deletions, telemetry: Telemetry) -> AsyncIterator[None]:
    task = asyncio.create_task(rows.run(2, telemetry))
    await asyncio.sleep(0)  # lets it add its metric
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_old_rows_are_deleted_batch_by_batch_also_after_an_outage_of_the_store(deletions: Deletions) -> None:
    rows = Rows(deletions.database, failures=3)
    async with running(rows, Telemetry()):
        assert await wait_until(lambda: not rows.rows)
    assert [*rows.times] == pytest.approx([time.time() - 2 * DAY] * len(rows.times), abs=60)


@pytest.mark.parametrize("ahead_seconds", [100 * DAY, -100 * DAY, 3600, -3600])
async def test_nothing_is_deleted_until_a_clock_that_jumped_by_days_is_steady_for_a_day(
    deletions: Deletions, database_url: str, ahead_seconds: float
) -> None:
    await read_clock(deletions.database)
    execute(database_url, f"UPDATE retention SET seen_at = seen_at - {ahead_seconds}")  # noqa: S608 - constants
    rows, (telemetry, read) = Rows(deletions.database), measured()
    async with running(rows, telemetry):
        if abs(ahead_seconds) > DAY:
            assert await wait_until(lambda: read()["shop.retention.paused",])
            assert (rows.rows, await read_clock(deletions.database)) == (1_000, None)
            execute(database_url, f"UPDATE retention SET steady_since = steady_since - {DAY}")  # noqa: S608 - as above
        assert await wait_until(lambda: not rows.rows and not read()["shop.retention.paused",])


async def test_a_row_whose_time_is_damaged_is_kept(deletions: Deletions) -> None:
    damaged = {"old": "SELECT 1 AS id, 9e99 AS at", "delete": ["SELECT 1 AS id"]}
    rows = Deletions(deletions.database, **TABLE | damaged)
    assert (await rows.delete_old(time.time(), 10), await rows.complete_since()) == (0, 0)


@pytest.mark.parametrize(("column", "oldest"), [("Double", "1000"), ("DateTime", "'1970-01-01 00:16:40'")])
async def test_a_store_of_an_older_release_is_complete_since_its_oldest_row(
    database_url: str, tmp_path: Path, column: str, oldest: str
) -> None:
    migrate(database_url, add_migration(tmp_path, 0, column))
    execute(database_url, f"INSERT INTO records (at) VALUES ({oldest})")  # noqa: S608 - constants
    migrate(database_url, add_migration(tmp_path, 1, column))
    async with open_database(database_url, unavailable=lambda: Unavailable("the database does not answer")) as database:
        deletions = Deletions(database, **TABLE)
        assert await deletions.complete_since() == 1000
        assert await read_clock(deletions.database) is None  # long after the newest row
