"""The clients of the six peers, on channels to their configured addresses."""

import grpc

from chassis.server import Service
from chassis.settings import ServiceSettings
from checkout_service.peers.notifications import CartClient, EmailClient
from checkout_service.peers.payment import PaymentClient
from checkout_service.peers.quotes import ShopQuotes
from checkout_service.peers.shipping import ShippingClient
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2_grpc import EmailServiceStub
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

_READ_SECONDS = 1.0
_CHARGE_SECONDS = 5.0
_SHIP_SECONDS = 3.0
_SEND_SECONDS = 10.0


class Addresses(ServiceSettings):
    """Addresses of the peers, each as host:port."""

    cart_addr: str
    product_catalog_addr: str
    shipping_addr: str
    currency_addr: str
    payment_addr: str
    email_addr: str


class Peers:
    """Clients of the peers. Their channels retry reads only; the saga retries calls with effects, under their keys."""

    def __init__(self, at: Addresses, service: Service) -> None:
        def channel(address: str, name: str, seconds: float, *retried: str) -> grpc.aio.Channel:
            return service.channel(address, name, timeout_seconds=seconds, retryable=retried)

        carts = channel(at.cart_addr, "shop.CartService", _READ_SECONDS, "GetCart")
        cart = CartServiceStub(carts)
        catalog = ProductCatalogServiceStub(
            channel(at.product_catalog_addr, "shop.ProductCatalogService", _READ_SECONDS, "GetProduct")
        )
        currency = CurrencyServiceStub(channel(at.currency_addr, "shop.CurrencyService", _READ_SECONDS, "Convert"))
        shipping_channel = channel(at.shipping_addr, "shop.ShippingService", _READ_SECONDS, "GetQuote")
        shipping = ShippingServiceStub(shipping_channel)
        payment = channel(at.payment_addr, "shop.PaymentService", _CHARGE_SECONDS)
        email = EmailServiceStub(channel(at.email_addr, "shop.EmailService", _SEND_SECONDS))
        self.quotes = ShopQuotes(cart, catalog, currency, shipping)
        self.payment = PaymentClient(PaymentServiceStub(payment), PaymentLedgerStub(payment))
        self.shipping = ShippingClient(shipping, ShipmentManifestStub(shipping_channel), _SHIP_SECONDS)
        self.mailer = EmailClient(email)
        self.cart_clearer = CartClient(cart, OrderedCartStub(carts))
