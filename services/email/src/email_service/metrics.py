"""Metrics and logs of sending attempts, and the spool's periodic housekeeping."""

from collections.abc import Mapping

import structlog

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from email_service.messages import NO_RESPONSE, MessageState, Outcome
from email_service.spool.sql import Spool

log = structlog.get_logger()

HOUSEKEEPING_SECONDS = 10.0
_LEVELS = {Outcome.REFUSED: "error", Outcome.IN_DOUBT: "error", Outcome.SENT: "debug"}
_UNSENT = [state for state in MessageState if state is not MessageState.SENT]


class MessageMetrics:
    """Counts sending attempts by outcome, and exports the spool statistics that `housekeep` sets."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics: Mapping[MessageState, tuple[int, float]] = {}
        self._attempts = telemetry.counter(semconv.EMAIL_ATTEMPTS)
        telemetry.observe(
            semconv.LETTERS,
            lambda: [(self._statistics_of(state)[0], ((semconv.LETTER_STATE, state.value),)) for state in _UNSENT],
        )
        telemetry.observe(semconv.OLDEST_LETTER, lambda: [(self._statistics_of(MessageState.QUEUED)[1], ())])

    def record_attempt(self, message_id: str, outcome: Outcome, reason: str = "") -> None:
        """Count and log an attempt's outcome. Never log the message's recipient or text."""
        self._attempts.add(1, ((semconv.ATTEMPT_OUTCOME, outcome.name),))
        write = getattr(log, _LEVELS.get(outcome, "warning"))
        write("send attempted", message_id=message_id, outcome=outcome.name, **({"reason": reason} if reason else {}))

    def _statistics_of(self, state: MessageState) -> tuple[int, float]:
        return self.statistics.get(state, (0, 0.0))


async def housekeep(spool: Spool, metrics: MessageMetrics) -> None:
    """Mark messages as IN_DOUBT if the relay's response is overdue, and update the statistics."""
    for message_id in await spool.give_up_overdue():
        metrics.record_attempt(message_id, Outcome.IN_DOUBT, NO_RESPONSE)
    metrics.statistics = await spool.statistics()
