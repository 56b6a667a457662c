"""Span attributes that make all of an order's traces easy to find, and links between the traces."""

from opentelemetry import trace
from opentelemetry.trace import Link

from chassis.telemetry import semconv
from chassis.telemetry.propagation import TRACEPARENT, W3C
from chassis.values.money import NANOS_PER_UNIT
from checkout_service.domain import Order


def describe_request(order_id: str, currency_code: str, item_count: int) -> None:
    """Set the current span's order attributes that are known before the order is priced."""
    trace.get_current_span().set_attributes(
        {semconv.ORDER_ID: order_id, semconv.ORDER_CURRENCY: currency_code, semconv.ORDER_ITEM_COUNT: item_count}
    )


def describe_order(order: Order, *, attempt: int, replayed: bool | None = None) -> None:
    """Set the span's order attributes. `replayed` is True if another call started the order, and None in recovery."""
    total = order.total
    describe_request(order.order_id, total.currency_code, len(order.lines))
    trace.get_current_span().set_attributes(
        {semconv.ORDER_TOTAL: total.total_nanos / NANOS_PER_UNIT, semconv.ORDER_ATTEMPT: attempt}
        | ({} if replayed is None else {semconv.ORDER_REPLAYED: replayed})
    )


def current_traceparent() -> str:
    """Return the current span's context as a traceparent, or an empty string if the span is not sampled."""
    is_sampled = trace.get_current_span().get_span_context().trace_flags.sampled
    return W3C.inject().get(TRACEPARENT, "") if is_sampled else ""


def links_to(traceparent: str) -> list[Link]:
    """Return a link to the traceparent's span, or no link if the traceparent is empty, invalid or not sampled."""
    context = trace.get_current_span(W3C.extract([(TRACEPARENT, traceparent)])).get_span_context()
    return [Link(context)] if context.trace_flags.sampled else []
