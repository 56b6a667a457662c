"""Converts wire messages to the domain. Every function raises InvalidArgument with the path of a field."""

from chassis.rpc.wire import address_from_wire, parse_wire_money
from chassis.values.fields import require_present
from email_service.domain import Line, Order
from shop import order_pb2


def order_from_wire(message: order_pb2.OrderResult) -> Order:
    """Return the order in the `order` field of a request."""
    require_present(message.HasField("shipping_cost"), "order.shipping_cost")
    return Order(
        order_id=message.order_id,
        tracking_id=message.shipping_tracking_id,
        lines=[_line_from_wire(item, f"order.items[{index}]") for index, item in enumerate(message.items)],
        shipping_cost=parse_wire_money(message.shipping_cost, field="order.shipping_cost"),
        address=address_from_wire(message.shipping_address),
    )


def _line_from_wire(message: order_pb2.OrderItem, field: str) -> Line:
    require_present(message.HasField("item"), f"{field}.item")
    require_present(message.HasField("cost"), f"{field}.cost")
    return Line(message.item.product_id, message.item.quantity, parse_wire_money(message.cost, field=f"{field}.cost"))
