"""The six services that an order needs, as the settings address them."""

import grpc

from chassis.server import Service
from chassis.settings import ServiceSettings
from checkout_service.clients import CartEmptier, Mailer, PaymentClient, ShippingClient
from checkout_service.quotes import ShopQuotes
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2_grpc import EmailServiceStub
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub

_READ_SECONDS = 1.0
_CHARGE_SECONDS = 5.0
_SHIP_SECONDS = 3.0
_SEND_SECONDS = 10.0


class Addresses(ServiceSettings):
    """Where the peers are, each as host:port."""

    cart_addr: str
    product_catalog_addr: str
    shipping_addr: str
    currency_addr: str
    payment_addr: str
    email_addr: str


class Peers:
    """Channels to the peers. Only reads are repeated by the channel; a saga repeats what has effects, under its key."""

    def __init__(self, at: Addresses, service: Service) -> None:
        def channel(address: str, name: str, seconds: float, *retried: str) -> grpc.aio.Channel:
            return service.channel(address, name, timeout_seconds=seconds, retryable=retried)

        cart = CartServiceStub(channel(at.cart_addr, "shop.CartService", _READ_SECONDS, "GetCart"))
        catalog = ProductCatalogServiceStub(
            channel(at.product_catalog_addr, "shop.ProductCatalogService", _READ_SECONDS, "GetProduct")
        )
        currency = CurrencyServiceStub(channel(at.currency_addr, "shop.CurrencyService", _READ_SECONDS, "Convert"))
        shipping = ShippingServiceStub(channel(at.shipping_addr, "shop.ShippingService", _READ_SECONDS, "GetQuote"))
        payment = channel(at.payment_addr, "shop.PaymentService", _CHARGE_SECONDS)
        email = EmailServiceStub(channel(at.email_addr, "shop.EmailService", _SEND_SECONDS))
        self.quotes = ShopQuotes(cart, catalog, currency, shipping)
        self.payment = PaymentClient(PaymentServiceStub(payment), PaymentLedgerStub(payment))
        self.shipping = ShippingClient(shipping, _SHIP_SECONDS)
        self.mailer = Mailer(email)
        self.emptier = CartEmptier(cart)
