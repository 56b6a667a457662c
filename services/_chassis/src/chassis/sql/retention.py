import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass

import structlog

from chassis.background import repeat

log = structlog.get_logger()

_DAY_SECONDS = 86_400
_TURN_SECONDS = 3600.0
_BATCH = 200
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Retention:
    """Deletes old rows in small batches, so that it doesn't delay other writes. Every replica does this."""

    # Takes an age in seconds and a limit. Deletes older rows, up to the limit, and returns how many it deleted.
    delete_old: Callable[[float, int], Awaitable[int]]
    _: KW_ONLY
    days: float
    rows: str  # the name of the rows in logs

    @property
    def complete_since(self) -> float:
        """The start of the period whose rows are all still stored, in seconds since 1970."""
        return max(time.time() - self.days * _DAY_SECONDS, 0.0)

    async def run(self) -> None:
        await repeat(self._delete_all, _TURN_SECONDS, "old rows cannot be deleted", rows=self.rows)

    async def _delete_all(self) -> None:
        total = 0
        while deleted := await self.delete_old(self.days * _DAY_SECONDS, _BATCH):
            total += deleted
            await asyncio.sleep(_PAUSE_SECONDS)
        if total:
            log.info("old rows deleted", rows=self.rows, deleted=total)
