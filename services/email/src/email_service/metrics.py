"""Metrics and log lines about letters, for operators."""

import structlog

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from email_service.letters import LetterState, Outcome, SpoolStatistics

log = structlog.get_logger()

_LEVELS = {Outcome.REFUSED: "error", Outcome.IN_DOUBT: "error", Outcome.SENT: "debug"}
_NOT_SENT = [state for state in LetterState if state is not LetterState.SENT]


class LetterMetrics:
    """Counts attempts by their outcome, and exports the spool's statistics as gauges.

    Attributes:
        statistics: as last read; the housekeeping updates it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = SpoolStatistics({}, 0.0)
        self._attempts = telemetry.counter(semconv.EMAIL_ATTEMPTS)
        telemetry.observe(
            semconv.LETTERS,
            lambda: [
                (self.statistics.letters.get(state, 0), ((semconv.LETTER_STATE, state.value),)) for state in _NOT_SENT
            ],
        )
        telemetry.observe(semconv.OLDEST_LETTER, lambda: [(self.statistics.oldest_queued_seconds, ())])

    def record_attempt(self, letter_id: str, outcome: Outcome, reason: str = "") -> None:
        """Count and log the outcome of an attempt. Neither recipient nor text are logged."""
        self._attempts.add(1, ((semconv.ATTEMPT_OUTCOME, outcome.name),))
        write = getattr(log, _LEVELS.get(outcome, "warning"))
        write("letter attempted", letter_id=letter_id, outcome=outcome.name, **({"reason": reason} if reason else {}))
