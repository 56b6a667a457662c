"""Periodic work on the spool, with or without a relay."""

import structlog

from email_service.messages import NO_RESPONSE, MessageState, Outcome
from email_service.metrics import MessageMetrics
from email_service.spool.sql import Spool

log = structlog.get_logger()

INTERVAL_SECONDS = 10.0


async def housekeep(spool: Spool, metrics: MessageMetrics) -> None:
    """Give up overdue responses, delete old messages, and update the statistics."""
    for message_id in await spool.give_up_overdue():
        metrics.record_attempt(message_id, Outcome.IN_DOUBT, NO_RESPONSE)
    deleted = await spool.delete_old()
    if unsent := {state.value: count for state, count in deleted.items() if state is not MessageState.SENT}:
        log.error("old messages deleted unsent", **unsent)
    metrics.statistics = await spool.statistics()
