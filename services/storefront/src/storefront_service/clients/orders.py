import asyncio
from collections.abc import Sequence
from datetime import UTC

from chassis.errors import NotFound
from chassis.rpc.wire import address_to_wire, card_to_wire, items_from_wire, money_from_wire, order_lines_from_wire
from chassis.values.countries import format_postal_code
from chassis.values.money import Money
from shop import checkout_pb2, order_pb2
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_internal import orders_pb2
from shop_internal.orders_pb2_grpc import OrderJournalStub, OrderQuotesStub
from storefront_service.domain import Order, Receipt, Step
from storefront_service.order_form import OrderForm

_REPLAYED = "order-replayed"
_LISTED = 50
_REMOVAL = "empty_cart"
_UNSETTLED = {"CHARGING", "VOIDING", "NEEDS_REFUND", "NEEDS_REVIEW", "SETTLING"}


class OrdersClient:
    """Quotes, places and reads orders. Every method raises DomainError if checkout refuses the call or fails."""

    def __init__(self, checkout: CheckoutServiceStub, quotes: OrderQuotesStub, journal: OrderJournalStub) -> None:
        self._checkout = checkout
        self._quotes = quotes
        self._journal = journal

    async def quote(self, user_id: str, currency: str, form: OrderForm) -> Receipt:
        """Return the receipt that the user would get for ordering the cart now."""
        return _receipt_from_wire(await self._quotes.QuoteOrder(_request_to_wire(user_id, currency, form)))

    async def place(self, user_id: str, total: Money, form: OrderForm) -> tuple[str, bool]:
        """Order the user's cart if it still costs `total`. Return the order's id, and whether it already existed.

        If the same form has already placed an order, return that order and don't place another.
        """
        request = _request_to_wire(user_id, total.currency_code, form)
        metadata = (("idempotency-key", form.key), ("expected-total", str(total)))
        call = self._checkout.PlaceOrder(request, metadata=metadata)
        order_id = (await call).order.order_id
        return order_id, _REPLAYED in {name for name, _ in await call.trailing_metadata()}

    async def find(self, user_ids: Sequence[str], order_id: str) -> Order | None:
        """Return an order with its history, or None if none of these users has such an order."""
        try:
            found = await self._journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))
        except NotFound:
            return None
        if found.order.user_id not in user_ids:
            return None
        receipt = _receipt_from_wire(found.result) if found.HasField("result") else None
        return _from_wire(found.order, found.history, receipt)

    async def latest(self, *user_ids: str) -> list[Order]:
        """Return these users' latest orders, newest first, without their histories."""
        requests = [orders_pb2.ListOrdersRequest(user_id=user_id, limit=_LISTED) for user_id in user_ids]
        responses = await asyncio.gather(*map(self._journal.ListOrders, requests))
        orders = (_from_wire(order) for response in responses for order in response.orders)
        return sorted(orders, key=lambda order: order.created_at, reverse=True)


def _request_to_wire(user_id: str, currency: str, form: OrderForm) -> checkout_pb2.PlaceOrderRequest:
    return checkout_pb2.PlaceOrderRequest(
        user_id=user_id,
        user_currency=currency,
        email=form.email,
        address=address_to_wire(form.address),
        credit_card=card_to_wire(form.card),
    )


def _from_wire(
    order: orders_pb2.Order, history: Sequence[orders_pb2.OrderEvent] = (), receipt: Receipt | None = None
) -> Order:
    return Order(
        order_id=order.order_id,
        user_id=order.user_id,
        state=_state_from_wire(order.state),
        total=money_from_wire(order.total),
        created_at=order.created_at.ToDatetime(UTC),
        tracking_id=order.tracking_id,
        holds_cart=_REMOVAL in {*order.outbox, *order.dead_letters} or _state_from_wire(order.state) in _UNSETTLED,
        reason=order.reason,
        lines=items_from_wire(order.items),
        history=tuple(map(_step_from_wire, history)),
        receipt=receipt,
    )


def _step_from_wire(event: orders_pb2.OrderEvent) -> Step:
    state = _state_from_wire(event.state)
    # Hide who settled an order and why: only operators may see that.
    detail = "" if event.step.startswith("settled_") else event.detail
    return Step(event.at.ToDatetime(UTC), event.step, state, event.attempt, event.epoch, detail)


def _state_from_wire(state: "orders_pb2.OrderState.ValueType") -> str:
    return orders_pb2.OrderState.Name(state).removeprefix("ORDER_STATE_")


def _receipt_from_wire(result: order_pb2.OrderResult) -> Receipt:
    at = result.shipping_address
    city = " ".join(part for part in (format_postal_code(at.zip_code, at.country), at.city) if part)
    address = tuple(part for part in (at.street_address, city, at.state, at.country) if part)
    return Receipt(order_lines_from_wire(result.items), money_from_wire(result.shipping_cost), address)
