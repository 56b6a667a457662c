"""Periodic work on the spool, whether or not there is a relay."""

import asyncio

import structlog

from email_service.letters import NO_RESPONSE, LetterState, Outcome, Spool, SpoolUnavailable
from email_service.metrics import LetterMetrics

log = structlog.get_logger()

TURN_SECONDS = 10.0


async def housekeep(spool: Spool, metrics: LetterMetrics) -> None:
    """Give up responses that are overdue, delete old letters and update the statistics, until cancelled."""
    while True:
        try:
            await _turn(spool, metrics)
        except SpoolUnavailable:
            log.warning("the spool is unavailable")
        await asyncio.sleep(TURN_SECONDS)


async def _turn(spool: Spool, metrics: LetterMetrics) -> None:
    for letter_id in await spool.give_up_overdue():
        metrics.record_attempt(letter_id, Outcome.IN_DOUBT, NO_RESPONSE)
    deleted = await spool.delete_old()
    if unsent := {state.value: count for state, count in deleted.items() if state is not LetterState.SENT}:
        log.error("old letters deleted unsent", **unsent)
    metrics.statistics = await spool.statistics()
