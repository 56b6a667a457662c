"""Converts between domain objects and gRPC messages."""

from collections import Counter
from collections.abc import Iterable

from chassis.rpc.wire import address_from_wire, address_to_wire, card_from_wire, item_to_wire, money_to_wire
from chassis.values.money import parse_amount
from chassis.values.orders import Item
from checkout_service.ports import Entry
from checkout_service.requests import OrderRequest
from shop import cart_pb2, checkout_pb2, order_pb2


def request_from_wire(
    request: checkout_pb2.PlaceOrderRequest, key: str | None = None, expected_total: str | None = None
) -> OrderRequest:
    """Convert a request without validating it. Raise InvalidArgument if `expected_total` is not an amount."""
    return OrderRequest(
        request.user_id,
        request.user_currency,
        address_from_wire(request.address) if request.HasField("address") else None,
        request.email,
        card_from_wire(request.credit_card) if request.HasField("credit_card") else None,
        key,
        parse_amount(expected_total, "expected-total") if expected_total is not None else None,
    )


def order_to_wire(entry: Entry) -> order_pb2.OrderResult:
    """Convert an order for responses and confirmations. Identical orders serialize to identical bytes."""
    order = entry.order
    return order_pb2.OrderResult(
        order_id=order.order_id,
        shipping_tracking_id=entry.tracking_id,
        shipping_cost=money_to_wire(order.shipping_cost),
        shipping_address=address_to_wire(order.address),
        items=[order_pb2.OrderItem(item=item_to_wire(line), cost=money_to_wire(line.cost)) for line in order.lines],
    )


def lines_from_wire(items: Iterable[cart_pb2.CartItem]) -> tuple[Item, ...]:
    """Convert a cart's lines. Other cart services may return several lines for one product; merge them."""
    quantities: Counter[str] = Counter()
    for item in items:
        quantities[item.product_id] += item.quantity
    return tuple(Item(*line) for line in quantities.items())
