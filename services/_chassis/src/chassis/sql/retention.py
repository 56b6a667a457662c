"""Deletes a store's old rows, and records what was deleted, in the single row of the store's table `retention`."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from chassis.background import repeat
from chassis.sql.database import NOW, Database
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry

log = structlog.get_logger()

_DAY_SECONDS = 86_400
_TURN_SECONDS = 300.0
_BATCH = 200
_PAUSE_SECONDS = 0.2

_RECORD = "UPDATE retention SET deleted_until = :until WHERE deleted_until < :until"

# A time without turns looks like a jump, too. Before the first turn, there is no time to compare with.
_READ_CLOCK = f"""
    UPDATE retention SET
        steady_since = CASE WHEN abs(seen_at - {NOW}) > {_DAY_SECONDS} THEN {NOW} ELSE steady_since END, seen_at = {NOW}
    RETURNING seen_at, steady_since
"""  # noqa: S608 - constants


class Deletions:
    """A store's own record of what it has deleted and whether its clock is steady. Times are in seconds since 1970."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def complete_since(self) -> float:
        """Return the highest time of a deleted row, whatever the retention is now; 0 if none was ever deleted."""
        (row,) = await self._database.read("SELECT deleted_until FROM retention", {})
        return float(row["deleted_until"])

    async def record(self, until: float) -> None:
        """Record that rows up to this time are about to be deleted."""
        await self._database.write((_RECORD, {"until": until}))

    async def read_clock(self) -> float | None:
        """Return the database's time, or None if it has jumped by more than a day within the last day."""
        ((row,),) = await self._database.write((_READ_CLOCK, {}))
        return float(row["seen_at"]) if row["seen_at"] - row["steady_since"] >= _DAY_SECONDS else None


class Retention:
    """Deletes old rows in small batches, so that it doesn't delay other writes. Every replica does this.

    Args:
        delete_old: takes a time in seconds since 1970 and a limit; records and deletes older rows, up to the limit, and
            returns how many.
        days: how long rows are kept.
        rows: the name of the rows in logs.
    """

    def __init__(
        self,
        deletions: Deletions,
        delete_old: Callable[[float, int], Awaitable[int]],
        *,
        days: float,
        rows: str,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._deletions = deletions
        self._delete_old = delete_old
        self._age_seconds = days * _DAY_SECONDS
        self._rows = rows
        self._paused = False
        (telemetry or Telemetry()).observe(semconv.RETENTION_PAUSED, lambda: [(int(self._paused), ())])

    async def run(self) -> None:
        await repeat(self._delete_all, _TURN_SECONDS, "old rows cannot be deleted", rows=self._rows)

    async def _delete_all(self) -> None:
        now = await self._deletions.read_clock()
        self._paused = now is None
        if now is None:
            log.warning("nothing is deleted, because the clock has jumped", rows=self._rows)
            return
        total = 0
        # Don't read the clock again: it may jump at any moment.
        while deleted := await self._delete_old(now - self._age_seconds, _BATCH):
            total += deleted
            await asyncio.sleep(_PAUSE_SECONDS)
        if total:
            log.info("old rows deleted", rows=self._rows, deleted=total)
