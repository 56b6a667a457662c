"""Periodic work on the spool, with and without a relay."""

from functools import partial

import structlog

from chassis.background import repeat
from email_service.messages import NO_RESPONSE, MessageState, Outcome
from email_service.metrics import MessageMetrics
from email_service.spool.sql import Spool

log = structlog.get_logger()

INTERVAL_SECONDS = 10.0


async def housekeep(spool: Spool, metrics: MessageMetrics) -> None:
    """Give up overdue responses, delete old messages and update the statistics, until cancelled."""
    await repeat(partial(_housekeep_once, spool, metrics), INTERVAL_SECONDS, "the spool is unavailable")


async def _housekeep_once(spool: Spool, metrics: MessageMetrics) -> None:
    for message_id in await spool.give_up_overdue():
        metrics.record_attempt(message_id, Outcome.IN_DOUBT, NO_RESPONSE)
    deleted = await spool.delete_old()
    if unsent := {state.value: count for state, count in deleted.items() if state is not MessageState.SENT}:
        log.error("old messages deleted unsent", **unsent)
    metrics.statistics = await spool.statistics()
