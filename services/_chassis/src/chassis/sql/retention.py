"""Deletes a store's old rows. The store's one-row `retention` table records the time up to which they were deleted."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from chassis.background import repeat
from chassis.sql.database import NOW, Database, Row, listed
from chassis.sql.queue_head import QueueHead
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.paging import is_time

log = structlog.get_logger()

_DAY_SECONDS = 86_400
_TURN_SECONDS = 300.0
_BATCH = 200
_PAUSE_SECONDS = 0.2

_RECORD = "UPDATE retention SET deleted_until = :until WHERE deleted_until < :until"
# More than a day between two runs also counts as a clock jump. `seen_at` is NULL before the first run in a new store.
_READ_CLOCK = f"""
    UPDATE retention SET
        steady_since = CASE WHEN abs(seen_at - {NOW}) > {_DAY_SECONDS} THEN {NOW} ELSE steady_since END, seen_at = {NOW}
    RETURNING seen_at, steady_since
"""  # noqa: S608 - interpolates only constants


@dataclass
class Deletions:
    """Deletes a store's old rows. Records clock jumps and the time up to which rows were deleted. Times are Unix times.

    Attributes:
        name: the name for these rows in logs.
        key: the column that identifies a row.
        old: a query that returns the key and time (`at`) of up to :limit rows older than :older_than, after skipping
            the first :passed.
        delete: statements that delete the rows with the keys in :items if they are still older than :older_than. The
            first statement returns the deleted rows.
        on_deleted: called with the rows that the first statement returned.
    """

    database: Database
    name: str
    key: str
    old: str
    delete: Sequence[str]
    on_deleted: Callable[[Sequence[Row]], None] = lambda _deleted: None
    _head: QueueHead = field(default_factory=QueueHead, init=False)
    _paused: bool = field(default=False, init=False)

    async def run(self, days: float, telemetry: Telemetry) -> None:
        """Keep deleting rows that are older than `days` days, until cancelled. Every replica runs this."""
        telemetry.observe(semconv.RETENTION_PAUSED, lambda: [(int(self._paused), ())])
        await repeat(partial(self._delete_all, days), _TURN_SECONDS, "old rows cannot be deleted", rows=self.name)

    async def _delete_all(self, days: float) -> None:
        now, total = await read_clock(self.database), 0
        self._paused = now is None
        if now is None:
            log.warning("nothing is deleted, because the clock has jumped", rows=self.name)
            return
        # Delete small batches, so that other writes aren't delayed. Use the same cutoff for all of them, because the
        # clock may jump at any moment.
        while deleted := await self.delete_old(now - days * _DAY_SECONDS, _BATCH):
            total += deleted
            await asyncio.sleep(_PAUSE_SECONDS)
        if total:
            log.info("old rows deleted", rows=self.name, deleted=total)

    async def delete_old(self, older_than: float, limit: int) -> int:
        """Delete up to `limit` rows older than `older_than`. Return how many were deleted."""
        return len(await self._head.take(partial(self._delete, older_than), limit))

    async def _delete(self, older_than: float, limit: int, passed: int) -> Sequence[Row]:
        found = await self.database.report(self.old, {"older_than": older_than, "limit": limit, "passed": passed})
        if not (old := [row for row in found if is_time(row["at"])]):  # keep a row whose time is damaged
            return []
        # Record the deletion first, so that services can refuse repeated requests whose rows may be gone.
        await self.database.write((_RECORD, {"until": max(row["at"] for row in old)}))
        values = {"older_than": older_than, "items": listed({self.key: row[self.key]} for row in old)}
        deleted, *_ = await self.database.write(*((text, values) for text in self.delete))
        self.on_deleted(deleted)
        return deleted

    async def complete_since(self) -> float:
        """Return the time of the newest row ever deleted, or 0 if none was. All newer rows are still stored."""
        (row,) = await self.database.read("SELECT deleted_until FROM retention", {})
        return float(row["deleted_until"])


async def read_clock(database: Database) -> float | None:
    """Return the database's time, or None if its clock has jumped by more than a day within the last day."""
    ((row,),) = await database.write((_READ_CLOCK, {}))
    return float(row["seen_at"]) if row["seen_at"] - row["steady_since"] >= _DAY_SECONDS else None
