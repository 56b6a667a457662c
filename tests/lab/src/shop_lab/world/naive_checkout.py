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
from chassis.rpc.wire import money_from_wire, money_to_wire
from chassis.settings import ServiceSettings
from chassis.values.money import round_to_minor_unit, total
from shop import checkout_pb2, checkout_pb2_grpc, money_pb2
from shop.cart_pb2 import Cart, CartItem, EmptyCartRequest, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.order_pb2 import OrderItem, OrderResult
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2 import GetProductRequest
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.shipping_pb2 import GetQuoteRequest, ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub

_TIMEOUT_SECONDS = 3.0


class CartEmpty(FailedPrecondition):
    """The cart has no items to order."""


class Settings(ServiceSettings):
    """Addresses of the services that checkout calls."""

    cart_addr: str
    product_catalog_addr: str
    shipping_addr: str
    currency_addr: str
    payment_addr: str
    email_addr: str


class NaiveCheckout(checkout_pb2_grpc.CheckoutServiceServicer):
    """shop.CheckoutService with the sequence of calls that shops often have."""

    def __init__(self, settings: Settings, service: Service) -> None:
        def channel(target: str, name: str) -> grpc.aio.Channel:
            return service.channel(target, name, timeout_seconds=_TIMEOUT_SECONDS)

        self._cart = CartServiceStub(channel(settings.cart_addr, "shop.CartService"))
        self._catalog = ProductCatalogServiceStub(channel(settings.product_catalog_addr, "shop.ProductCatalogService"))
        self._shipping = ShippingServiceStub(channel(settings.shipping_addr, "shop.ShippingService"))
        self._currency = CurrencyServiceStub(channel(settings.currency_addr, "shop.CurrencyService"))
        self._payment = PaymentServiceStub(channel(settings.payment_addr, "shop.PaymentService"))
        self._email = EmailServiceStub(channel(settings.email_addr, "shop.EmailService"))

    @override
    async def PlaceOrder(
        self, request: checkout_pb2.PlaceOrderRequest, context: ServicerContext
    ) -> checkout_pb2.PlaceOrderResponse:
        cart = await self._cart.GetCart(GetCartRequest(user_id=request.user_id))
        order = await self._price(cart, request)
        costs = [order.shipping_cost, *(line.cost for line in order.items)]
        amount = money_to_wire(total(request.user_currency, [money_from_wire(cost) for cost in costs]))
        await self._payment.Charge(ChargeRequest(amount=amount, credit_card=request.credit_card))
        shipment = await self._shipping.ShipOrder(ShipOrderRequest(address=request.address, items=cart.items))
        order.shipping_tracking_id = shipment.tracking_id
        await self._cart.EmptyCart(EmptyCartRequest(user_id=request.user_id))
        await self._email.SendOrderConfirmation(SendOrderConfirmationRequest(email=request.email, order=order))
        return checkout_pb2.PlaceOrderResponse(order=order)

    async def _price(self, cart: Cart, request: checkout_pb2.PlaceOrderRequest) -> OrderResult:
        if not cart.items:
            raise CartEmpty("the cart is empty")
        code = request.user_currency
        lines = [OrderItem(item=item, cost=await self._cost(item, code)) for item in cart.items]
        quote = await self._shipping.GetQuote(GetQuoteRequest(address=request.address, items=cart.items))
        return OrderResult(
            order_id=str(uuid.uuid4()),
            shipping_cost=await self._convert(quote.cost_usd, code),
            shipping_address=request.address,
            items=lines,
        )

    async def _cost(self, item: CartItem, code: str) -> money_pb2.Money:
        product = await self._catalog.GetProduct(GetProductRequest(id=item.product_id))
        return await self._convert(money_to_wire(money_from_wire(product.price_usd) * item.quantity), code)

    async def _convert(self, amount: money_pb2.Money, code: str) -> money_pb2.Money:
        request = CurrencyConversionRequest(to_code=code)
        getattr(request, "from").CopyFrom(amount)
        converted = money_from_wire(await self._currency.Convert(request))
        return money_to_wire(round_to_minor_unit(converted))


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Register the servicer."""
    service.add_servicer(checkout_pb2_grpc.add_CheckoutServiceServicer_to_server, NaiveCheckout(settings, service))
    yield


if __name__ == "__main__":
    run("checkout", Settings, build)
