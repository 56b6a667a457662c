"""The six services that an order needs, as the settings address them."""

from chassis.server import Service
from chassis.settings import ServiceSettings
from checkout_service.clients import CartEmptier, Mailer, PaymentClient, ShippingClient
from checkout_service.quotes import ShopQuotes
from shop import (
    cart_pb2_grpc,
    currency_pb2_grpc,
    email_pb2_grpc,
    payment_pb2_grpc,
    product_catalog_pb2_grpc,
    shipping_pb2_grpc,
)
from shop_internal import payment_ledger_pb2_grpc

_READ_SECONDS = 1.0
_CHARGE_SECONDS = 5.0
_LEDGER_SECONDS = 3.0
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

    def __init__(self, addresses: Addresses, service: Service) -> None:
        cart = cart_pb2_grpc.CartServiceStub(
            service.channel(addresses.cart_addr, "shop.CartService", timeout_seconds=_READ_SECONDS, retried=["GetCart"])
        )
        catalog = product_catalog_pb2_grpc.ProductCatalogServiceStub(
            service.channel(
                addresses.product_catalog_addr,
                "shop.ProductCatalogService",
                timeout_seconds=_READ_SECONDS,
                retried=["GetProduct"],
            )
        )
        currency = currency_pb2_grpc.CurrencyServiceStub(
            service.channel(
                addresses.currency_addr, "shop.CurrencyService", timeout_seconds=_READ_SECONDS, retried=["Convert"]
            )
        )
        shipping = shipping_pb2_grpc.ShippingServiceStub(
            service.channel(
                addresses.shipping_addr, "shop.ShippingService", timeout_seconds=_READ_SECONDS, retried=["GetQuote"]
            )
        )
        charges = service.channel(addresses.payment_addr, "shop.PaymentService", timeout_seconds=_CHARGE_SECONDS)
        email = service.channel(addresses.email_addr, "shop.EmailService", timeout_seconds=_SEND_SECONDS)
        self.quotes = ShopQuotes(cart, catalog, currency, shipping)
        self.payment = PaymentClient(
            payment_pb2_grpc.PaymentServiceStub(charges),
            payment_ledger_pb2_grpc.PaymentLedgerStub(charges),
        )
        self.shipping = ShippingClient(shipping, _SHIP_SECONDS)
        self.mailer = Mailer(email_pb2_grpc.EmailServiceStub(email))
        self.emptier = CartEmptier(cart)
