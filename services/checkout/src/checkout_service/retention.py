"""Deletes orders that are finished and old, with their history. Every replica runs it."""

import asyncio

import structlog

from checkout_service.ports import Journal, JournalUnavailable

log = structlog.get_logger()

_TURN_SECONDS = 3600.0
_BATCH = 200
_PAUSE_SECONDS = 0.2


class Retention:
    """Deletes orders in small batches, so that they delay no other write."""

    def __init__(self, journal: Journal, *, days: float) -> None:
        self._journal = journal
        self._seconds = days * 86_400

    async def run(self) -> None:
        """Delete old orders, until cancelled."""
        while True:
            try:
                await self._delete_all()
            except JournalUnavailable:
                log.warning("old orders cannot be deleted")
            await asyncio.sleep(_TURN_SECONDS)

    async def _delete_all(self) -> None:
        total = 0
        while deleted := await self._journal.delete_old(older_than_seconds=self._seconds, limit=_BATCH):
            total += deleted
            await asyncio.sleep(_PAUSE_SECONDS)
        if total:
            log.info("old orders deleted", orders=total)
