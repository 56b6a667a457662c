"""Metrics and log lines about messages, for operators."""

import structlog

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from email_service.messages import MessageState, Outcome, SpoolStatistics

log = structlog.get_logger()

_LEVELS = {Outcome.REFUSED: "error", Outcome.IN_DOUBT: "error", Outcome.SENT: "debug"}
_UNSENT = [state for state in MessageState if state is not MessageState.SENT]


class MessageMetrics:
    """Counts attempts by outcome, and exports the statistics that housekeeping sets."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = SpoolStatistics({}, 0.0)
        self._attempts = telemetry.counter(semconv.EMAIL_ATTEMPTS)
        telemetry.observe(
            semconv.LETTERS,
            lambda: [
                (self.statistics.unsent.get(state, 0), ((semconv.LETTER_STATE, state.value),)) for state in _UNSENT
            ],
        )
        telemetry.observe(semconv.OLDEST_LETTER, lambda: [(self.statistics.oldest_queued_seconds, ())])

    def record_attempt(self, message_id: str, outcome: Outcome, reason: str = "") -> None:
        """Count and log the outcome of an attempt, without the recipient or text."""
        self._attempts.add(1, ((semconv.ATTEMPT_OUTCOME, outcome.name),))
        write = getattr(log, _LEVELS.get(outcome, "warning"))
        write("send attempted", message_id=message_id, outcome=outcome.name, **({"reason": reason} if reason else {}))
