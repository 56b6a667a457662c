"""Attributes of the spans in which an order is placed or recovered: by its id, all its traces can be found."""

from opentelemetry import trace

from chassis.money import NANOS_PER_UNIT
from checkout_service.domain import Order


def describe_order(order: Order, *, attempt: int) -> None:
    """Set the attributes of the current span, if it is recorded."""
    span = trace.get_current_span()
    if not span.is_recording():
        return
    total = order.total
    span.set_attributes(
        {
            "shop.order.id": order.order_id,
            "shop.order.currency": total.currency_code,
            "shop.order.total": total.total_nanos / NANOS_PER_UNIT,
            "shop.order.item_count": len(order.lines),
            "shop.order.attempt": attempt,
        }
    )


def describe_response(*, replayed: bool) -> None:
    """Set on the current span whether the response repeats an order that another call has placed."""
    trace.get_current_span().set_attribute("shop.order.replayed", replayed)
