"""What operators see of orders without asking: a log line and a count at each change of state, and gauges."""

from collections.abc import Iterable

import structlog
from opentelemetry.metrics import CallbackOptions, Observation

from chassis.telemetry import Telemetry
from checkout_service.domain import State
from checkout_service.journal import Statistics

log = structlog.get_logger()


class Watch:
    """Reports changes of state as they happen, and the journal's statistics as they were last read."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = Statistics({}, 0.0, 0)
        meter = telemetry.meter
        self._changes = meter.create_counter("checkout_order_changes", description="Orders that came to a state")
        meter.create_observable_gauge(
            "checkout_orders", [self._orders], description="Orders that are not finished, by state"
        )
        meter.create_observable_gauge(
            "checkout_oldest_open_order_age",
            [self._oldest],
            unit="s",
            description="Since the last change of state of the open order that waits longest",
        )
        meter.create_observable_gauge(
            "checkout_outbox_backlog", [self._backlog], description="E-mails and carts still to be dealt with"
        )

    def changed(self, order_id: str, state: State, reason: str = "") -> None:
        """Report that an order came to a state."""
        self._changes.add(1, {"state": state.value})
        tell = log.error if state is State.NEEDS_REFUND else log.info
        tell("order changed", order_id=order_id, state=state.value, **({"reason": reason} if reason else {}))

    def _orders(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state in (State.CHARGING, State.VOIDING, State.SHIPPED, State.NEEDS_REFUND):
            yield Observation(self.statistics.orders.get(state, 0), {"state": state.value})

    def _oldest(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.oldest_open_seconds)

    def _backlog(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.outbox_backlog)
