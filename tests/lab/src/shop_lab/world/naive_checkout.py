"""The negative control of `shop prove`: a checkout without a journal, which must violate the invariants.

Each request gets a new random order id and makes its calls in sequence, without idempotency keys or retries: charge,
ship, empty the cart, send the confirmation. `python -m shop_lab.world.naive_checkout` serves it in checkout's place.
"""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from typing_extensions import override

from chassis.errors import FailedPrecondition
from chassis.rpc.calls import ServicerContext
from chassis.rpc.server import Service, run
from chassis.settings import ServiceSettings
from shop import checkout_pb2, checkout_pb2_grpc
from shop.cart_pb2 import Cart, EmptyCartRequest, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.money_pb2 import Money
from shop.order_pb2 import OrderItem, OrderResult
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub

_TIMEOUT_SECONDS = 3.0
_LINE_COST, _SHIPPING_COST = 10, 5


class CartEmpty(FailedPrecondition):
    """The cart has no items to order."""


class Settings(ServiceSettings):
    """Addresses of the services that have a part in an order; prices and rates do not matter here."""

    cart_addr: str
    shipping_addr: str
    payment_addr: str
    email_addr: str


class NaiveCheckout(checkout_pb2_grpc.CheckoutServiceServicer):
    """shop.CheckoutService with the sequence of calls that shops often have."""

    def __init__(self, settings: Settings, service: Service) -> None:
        def channel(target: str, name: str) -> grpc.aio.Channel:
            return service.channel(target, name, timeout_seconds=_TIMEOUT_SECONDS)

        self._cart = CartServiceStub(channel(settings.cart_addr, "shop.CartService"))
        self._shipping = ShippingServiceStub(channel(settings.shipping_addr, "shop.ShippingService"))
        self._payment = PaymentServiceStub(channel(settings.payment_addr, "shop.PaymentService"))
        self._email = EmailServiceStub(channel(settings.email_addr, "shop.EmailService"))

    @override
    async def PlaceOrder(
        self, request: checkout_pb2.PlaceOrderRequest, context: ServicerContext
    ) -> checkout_pb2.PlaceOrderResponse:
        cart = await self._cart.GetCart(GetCartRequest(user_id=request.user_id))
        order = _new_order(cart, request)
        units = sum(cost.units for cost in (order.shipping_cost, *(line.cost for line in order.items)))
        amount = Money(currency_code=request.user_currency, units=units)
        await self._payment.Charge(ChargeRequest(amount=amount, credit_card=request.credit_card))
        shipment = await self._shipping.ShipOrder(ShipOrderRequest(address=request.address, items=cart.items))
        order.shipping_tracking_id = shipment.tracking_id
        await self._cart.EmptyCart(EmptyCartRequest(user_id=request.user_id))
        await self._email.SendOrderConfirmation(SendOrderConfirmationRequest(email=request.email, order=order))
        return checkout_pb2.PlaceOrderResponse(order=order)


def _new_order(cart: Cart, request: checkout_pb2.PlaceOrderRequest) -> OrderResult:
    if not cart.items:
        raise CartEmpty("the cart is empty")
    code = request.user_currency
    return OrderResult(
        order_id=str(uuid.uuid4()),
        shipping_cost=Money(currency_code=code, units=_SHIPPING_COST),
        shipping_address=request.address,
        items=[OrderItem(item=item, cost=Money(currency_code=code, units=_LINE_COST)) for item in cart.items],
    )


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Register the servicer."""
    service.add_servicer(checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, NaiveCheckout(settings, service))
    yield


if __name__ == "__main__":
    run("checkout", Settings, build)
