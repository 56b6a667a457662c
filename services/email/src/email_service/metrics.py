"""Metrics and log lines about letters, for operators."""

from collections.abc import Iterable

import structlog
from opentelemetry.metrics import CallbackOptions, Observation

from chassis.telemetry import Telemetry
from email_service.letters import LetterState, Outcome, SpoolStatistics

log = structlog.get_logger()

_LEVELS = {Outcome.REFUSED: "error", Outcome.IN_DOUBT: "error", Outcome.SENT: "debug"}


class LetterMetrics:
    """Counts attempts by their outcome, and exports the spool's statistics as gauges.

    Attributes:
        statistics: as last read; the housekeeping updates it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = SpoolStatistics({}, 0.0)
        meter = telemetry.meter
        self._attempts = meter.create_counter("email_attempts", description="Attempts to send a letter, by outcome")
        meter.create_observable_gauge("email_letters", [self._letters], description="Letters not sent, by state")
        meter.create_observable_gauge(
            "email_oldest_queued_letter_age",
            [self._oldest],
            unit="s",
            description="Longest time since a letter was queued",
        )

    def record_attempt(self, letter_id: str, outcome: Outcome, reason: str = "") -> None:
        """Count and log the outcome of an attempt. Neither recipient nor text are logged."""
        self._attempts.add(1, {"outcome": outcome.name})
        write = getattr(log, _LEVELS.get(outcome, "warning"))
        write("letter attempted", letter_id=letter_id, outcome=outcome.name, **({"reason": reason} if reason else {}))

    def _letters(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state in LetterState:
            if state is not LetterState.SENT:
                yield Observation(self.statistics.letters.get(state, 0), {"state": state.value})

    def _oldest(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.oldest_queued_seconds)
