"""Order metrics and logs."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from chassis.telemetry import semconv
from chassis.telemetry.instruments import Attributes, Telemetry
from chassis.telemetry.semconv import NOTIFICATION_KIND, ORDER_CURRENCY, ORDER_STATE, ORDER_STEP
from chassis.values.money import NANOS_PER_UNIT
from checkout_service.domain import NEEDS_OPERATOR, OPEN, Order, State
from checkout_service.ports import OUTBOX_KINDS, Statistics

log = structlog.get_logger()

# Limits the number of time series: another implementation of the currency service may accept any currency code.
MAX_CURRENCIES = 200

OTHER_CURRENCY = "other"

# Changes to these states are logged at debug level, so that a placed order logs one info line, for SHIPPED.
_ROUTINE = frozenset({State.CHARGING, State.DONE})


class OrderMetrics:
    """Counts orders and state changes, and exports the journal's statistics as gauges.

    Every replica exports the same gauges for the shared journal, so query the gauges' maximum, not their sum.
    `statistics` holds the statistics that recovery last read from the journal; `recovered` counts the orders that
    recovery finished.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self.statistics = Statistics({}, 0.0, 0)
        self._changes = telemetry.counter(semconv.ORDER_CHANGES)
        self._placed = telemetry.counter(semconv.ORDERS_PLACED)
        self._revenue = telemetry.counter(semconv.REVENUE)
        self._retries = telemetry.counter(semconv.ORDER_RETRIES)
        self.recovered = telemetry.counter(semconv.ORDERS_RECOVERED)
        self.recovered.add(0)  # export 0 now: otherwise the first recovery would not show as an increase
        self._currencies: set[str] = set()
        observe, waiting = telemetry.observe, sorted(NEEDS_OPERATOR)
        unfinished = (*OPEN, State.SHIPPED, *waiting)
        observe(semconv.ORDERS, lambda: _by(ORDER_STATE, unfinished, self.statistics.orders))
        observe(semconv.OPERATOR_AGE, lambda: _by(ORDER_STATE, waiting, self.statistics.waiting_seconds))
        observe(semconv.OLDEST_OPEN_ORDER, lambda: [(self.statistics.oldest_open_seconds, ())])
        observe(semconv.OUTBOX_BACKLOG, lambda: [(self.statistics.outbox_backlog, ())])
        observe(semconv.OUTBOX_AGE, lambda: [(self.statistics.oldest_item_seconds, ())])
        observe(semconv.DEAD_LETTERS, lambda: _by(NOTIFICATION_KIND, OUTBOX_KINDS, self.statistics.dead_letters))
        observe(semconv.FUTURE_ORDERS, lambda: [(self.statistics.future_orders, ())])

    def record_change(self, order_id: str, state: State, reason: str = "") -> None:
        self._changes.add(1, ((ORDER_STATE, state.value),))
        write = log.debug if state in _ROUTINE else log.error if state in NEEDS_OPERATOR else log.info
        write("order changed", order_id=order_id, state=state.value, **({"reason": reason} if reason else {}))

    def record_placed(self, order: Order) -> None:
        total = order.total
        attributes = ((ORDER_CURRENCY, self._bounded(total.currency_code)),)
        self._placed.add(1, attributes)
        self._revenue.add(total.total_nanos / NANOS_PER_UNIT, attributes)

    def record_retry(self, step: str) -> None:
        self._retries.add(1, ((ORDER_STEP, step),))

    def _bounded(self, currency_code: str) -> str:
        if len(self._currencies) < MAX_CURRENCIES:
            self._currencies.add(currency_code)
        return currency_code if currency_code in self._currencies else OTHER_CURRENCY


def _by(attribute: str, values: Iterable[str], measured: Mapping[Any, float]) -> list[tuple[float, Attributes]]:
    """Return one data point per attribute value. Report negative ages, which occur if the clock was set back, as 0."""
    return [(max(measured.get(value, 0), 0), ((attribute, str(value)),)) for value in values]
