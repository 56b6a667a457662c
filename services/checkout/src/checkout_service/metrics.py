"""Metrics and log lines about orders, for operators."""

from collections import Counter
from collections.abc import Iterable

import structlog
from opentelemetry.metrics import CallbackOptions, Observation

from chassis.telemetry import Telemetry
from checkout_service.domain import NEEDS_OPERATOR, State
from checkout_service.ports import NOTIFICATIONS, Statistics

log = structlog.get_logger()

_ROUTINE = frozenset({State.CHARGING, State.DONE})
"""Before and after SHIPPED: at the level info, a placed order is one line."""


class OrderMetrics:
    """Counts changes of state as they happen, and exports the journal's statistics as gauges.

    Attributes:
        statistics: as last read; recovery updates it.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = Statistics({}, 0.0, 0)
        meter = telemetry.meter
        # Counted by hand: the SDK's counter takes ten times as long.
        self._changes: Counter[State] = Counter()
        meter.create_observable_counter(
            "checkout_order_changes", [self._count], description="Changes of an order's state"
        )
        meter.create_observable_gauge("checkout_orders", [self._orders], description="Unfinished orders by state")
        meter.create_observable_gauge(
            "checkout_oldest_open_order_age",
            [self._oldest],
            unit="s",
            description="Longest time since an open order last changed its state",
        )
        meter.create_observable_gauge(
            "checkout_outbox_backlog", [self._backlog], description="E-mails to send and carts to empty"
        )
        meter.create_observable_gauge(
            "checkout_dead_letters", [self._dead_letters], description="Notifications that failed for good, by kind"
        )
        meter.create_observable_gauge(
            "checkout_future_orders",
            [self._future_orders],
            description="Orders dated in the future, 1000 at most: the clock was set back",
        )

    def record_change(self, order_id: str, state: State, reason: str = "") -> None:
        """Count and log that an order reached a state."""
        self._changes[state] += 1
        write = log.debug if state in _ROUTINE else log.error if state in NEEDS_OPERATOR else log.info
        write("order changed", order_id=order_id, state=state.value, **({"reason": reason} if reason else {}))

    def _count(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state, changes in [*self._changes.items()]:
            yield Observation(changes, {"state": state.value})

    def _orders(self, _options: CallbackOptions) -> Iterable[Observation]:
        for state in (State.CHARGING, State.VOIDING, State.SHIPPED, *sorted(NEEDS_OPERATOR)):
            yield Observation(self.statistics.orders.get(state, 0), {"state": state.value})

    def _oldest(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.oldest_open_seconds)

    def _backlog(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.outbox_backlog)

    def _dead_letters(self, _options: CallbackOptions) -> Iterable[Observation]:
        for kind in NOTIFICATIONS:
            yield Observation(self.statistics.dead_letters.get(kind, 0), {"kind": kind})

    def _future_orders(self, _options: CallbackOptions) -> Iterable[Observation]:
        yield Observation(self.statistics.future_orders)
