"""Retention of orders within a simulation: after seconds instead of days."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from chassis.sql.database import Database, Parameters, Row, Statement
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import JournalUnavailable

RETENTION_SECONDS, _SLOW_SECONDS, _TURN_SECONDS = 2.0, 1.5, 0.1
_BATCH = 200


@dataclass(frozen=True, slots=True)
class _Slow(Database):
    """A journal's database that takes long between the two statements that find old orders and delete them."""

    database: Database

    async def write(self, *batch: Statement) -> Sequence[Sequence[Row]]:
        return await self.database.write(*batch)

    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> Sequence[Row]:
        return await self.database.read(text, parameters, within_seconds=within_seconds)

    async def report(self, text: str, parameters: Parameters) -> Sequence[Row]:
        # Not those that were placed: the evidence and the keys of the run must remain.
        rows = await self.database.report(text.replace("ORDER BY", "AND state <> 'DONE' ORDER BY"), parameters)
        await asyncio.sleep(_SLOW_SECONDS if rows else 0)
        return rows


async def delete_released_orders(database: Database, deleted: Counter[str]) -> None:
    """Delete the orders that were refused or abandoned a few seconds ago, until cancelled, and count them."""
    journal = SqlJournal(_Slow(database), "retention")
    while True:
        with suppress(JournalUnavailable):
            deleted["orders"] += await journal.delete_old(older_than_seconds=RETENTION_SECONDS, limit=_BATCH)
        await asyncio.sleep(_TURN_SECONDS)
