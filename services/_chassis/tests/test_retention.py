import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from chassis.errors import Unavailable
from chassis.sql import retention
from chassis.sql.retention import Retention
from shop_kit.waiting import wait_until


class Rows:
    """A store with `old` old rows. It is unavailable for the first `failures` calls."""

    def __init__(self, old: int, *, failures: int = 0) -> None:
        self.old = old
        self.failures = failures
        self.ages: set[float] = set()

    async def delete_old(self, older_than_seconds: float, limit: int) -> int:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the store does not answer")
        self.ages.add(older_than_seconds)
        deleted = min(limit, self.old)
        self.old -= deleted
        return deleted


@asynccontextmanager
async def running(rows: Rows) -> AsyncIterator[None]:
    task = asyncio.create_task(Retention(rows.delete_old, days=2, rows="rows").run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(retention, "_TURN_SECONDS", 0.01)


async def test_old_rows_are_deleted_batch_by_batch_also_after_an_outage_of_the_store() -> None:
    rows = Rows(1_000, failures=3)
    async with running(rows):
        await wait_until(lambda: not rows.old)
    assert rows.ages == {2 * 86_400}


def test_rows_are_complete_since_the_retention_time_and_at_most_since_1970() -> None:
    def complete_since(days: float) -> float:
        return Retention(Rows(0).delete_old, days=days, rows="rows").complete_since

    assert complete_since(2) == pytest.approx(time.time() - 2 * 86_400, abs=60)
    assert complete_since(1_000_000) == 0.0
