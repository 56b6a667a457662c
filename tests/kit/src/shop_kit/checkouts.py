"""A checkout with fake peers, and the order that Ann places with it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest

from chassis.errors import DomainError
from chassis.rpc.status import from_rpc_error
from chassis.rpc.wire import card_to_wire
from chassis.values.orders import Card
from shop.address_pb2 import Address
from shop.checkout_pb2 import PlaceOrderRequest, PlaceOrderResponse
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.order_pb2 import OrderResult
from shop.payment_pb2 import CreditCardInfo
from shop_internal import orders_pb2
from shop_internal.orders_pb2_grpc import OrderJournalStub, OrderQuotesStub
from shop_kit.failing import error_of
from shop_kit.fake_peers import FakePeers
from shop_kit.waiting import wait_for_result


@dataclass(frozen=True)
class Placed:
    """A PlaceOrder that succeeded."""

    response: PlaceOrderResponse
    replayed: bool


@dataclass(frozen=True)
class Checkout:
    """Stubs of a running checkout, and its fake peers."""

    orders: CheckoutServiceStub
    journal: OrderJournalStub
    quotes: OrderQuotesStub
    peers: FakePeers

    async def place(
        self, key: str | None = None, *, expected_total: str | None = None, within: float = 20, **changed: Any
    ) -> Placed:
        """Place Ann's order, with the given fields of the request changed."""
        given = {"idempotency-key": key, "expected-total": expected_total}
        metadata = tuple((name, value) for name, value in given.items() if value is not None)
        call = self.orders.PlaceOrder(order_request(**changed), timeout=within, metadata=metadata)
        response = await call
        trailers = dict(await call.trailing_metadata())
        return Placed(response, trailers.get("order-replayed") == "true")

    async def refused(self, key: str | None = None, *, within: float = 20, **changed: Any) -> DomainError:
        """Return the error of an order that is not placed, as our clients receive it."""
        return from_rpc_error(await error_of(self.place(key, within=within, **changed)))

    async def refused_at_deadline(self, key: str | None) -> DomainError:
        """Return the error after three seconds. The call has a minute: a busy machine takes long to receive it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("checkout_service.placing.ANSWER_BEFORE_DEADLINE_SECONDS", 57)
            return await self.refused(key, within=60)

    async def quote(self, **changed: Any) -> OrderResult:
        """Return the quote of Ann's order, which has no card, with the given fields of the request changed."""
        quoted: OrderResult = await self.quotes.QuoteOrder(order_request(credit_card=None, **changed))
        return quoted

    async def shown(self, order_id: str) -> orders_pb2.GetOrderResponse:
        """Return an order with its history, as operators see it."""
        found: orders_pb2.GetOrderResponse = await self.journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))
        return found

    async def listed(self, **selected: Any) -> list[orders_pb2.Order]:
        return list((await self.journal.ListOrders(orders_pb2.ListOrdersRequest(**selected))).orders)

    async def states(self) -> list[str]:
        return [orders_pb2.OrderState.Name(order.state).removeprefix("ORDER_STATE_") for order in await self.listed()]

    async def until_done(self, count: int) -> None:
        """Wait until so many orders are done."""
        done = [orders_pb2.ORDER_STATE_DONE]
        await wait_for_result(lambda: self.listed(states=done, limit=1000), lambda orders: len(orders) >= count)

    async def until_states(self, *states: str) -> list[orders_pb2.Order]:
        """Wait until there are orders in these states, and return them."""
        await wait_for_result(self.states, lambda reached: sorted(reached) == sorted(states))
        return await self.listed()


def peer_addresses(address: str) -> dict[str, str]:
    """Return the settings of a checkout whose peers have one address."""
    internal = ("cart_internal_addr", "shipping_internal_addr", "payment_internal_addr", "email_internal_addr")
    public = ("cart_addr", "product_catalog_addr", "shipping_addr", "currency_addr", "payment_addr", "email_addr")
    return dict.fromkeys((*public, *internal), address)


Start = Callable[..., AbstractAsyncContextManager[Checkout]]
"""Starts a checkout with settings that are given by name."""


def order_request(**changed: Any) -> PlaceOrderRequest:
    """Return Ann's request for an order in EUR, with the given fields changed; None leaves a field out."""
    fields = {
        "user_id": "ann",
        "user_currency": "EUR",
        "address": Address(street_address="Main 1", city="Berlin", country="Germany", zip_code=10115),
        "email": "ann@mail.example",
        "credit_card": _card("4242 4242 4242 4242"),
        **changed,
    }
    return PlaceOrderRequest(**{name: value for name, value in fields.items() if value is not None})


def _card(number: str) -> CreditCardInfo:
    return card_to_wire(Card(number, 123, 2035, 11))


OTHER_CARD = _card("5555 5555 5555 4444")
