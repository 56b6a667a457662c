"""Clients for the six peers, connected to the configured addresses."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc

from chassis.errors import Unimplemented
from chassis.rpc.server import Service
from chassis.settings import ServiceSettings
from checkout_service.peers.carts import CartClient
from checkout_service.peers.checks import CHECKS
from checkout_service.peers.confirmations import EmailClient
from checkout_service.peers.internal_service import NO_ADDRESS
from checkout_service.peers.payment import PaymentClient
from checkout_service.peers.quotes import ShopQuotes
from checkout_service.peers.shipping import SHIP_SECONDS, ShippingClient
from shop.cart_pb2_grpc import CartServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2_grpc import EmailServiceStub
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

_READ_SECONDS = 1.0
_CHARGE_SECONDS = 5.0
_SEND_SECONDS = 10.0


class Addresses(ServiceSettings):
    """The peers' addresses, as host:port. If a peer has no internal address, only its public service is used."""

    cart_addr: str
    product_catalog_addr: str
    shipping_addr: str
    currency_addr: str
    payment_addr: str
    email_addr: str
    cart_internal_addr: str | None = None
    shipping_internal_addr: str | None = None
    payment_internal_addr: str | None = None
    email_internal_addr: str | None = None


class _NoInternalServices:
    """A channel to a peer without internal services: every call raises Unimplemented."""

    def unary_unary(self, method: str, *_serializers: Any, **_options: Any) -> Callable[..., Awaitable[Any]]:
        async def call(_request: Any, **_options: Any) -> Any:
            raise Unimplemented(f"{method}: the peer has no internal services", reason=NO_ADDRESS)

        return call


class Peers:
    """Clients for the peers. Channels retry only reads. Sagas retry charges and shipments, under the same keys."""

    def __init__(self, at: Addresses, service: Service) -> None:
        def channel(address: str, name: str, *retried: str, seconds: float = _READ_SECONDS) -> grpc.aio.Channel:
            return service.channel(address, f"shop.{name}", timeout_seconds=seconds, retryable=retried, checks=CHECKS)

        def internal(address: str | None, name: str, seconds: float = _READ_SECONDS) -> grpc.aio.Channel:
            if not address:
                return cast("grpc.aio.Channel", _NoInternalServices())
            return channel(address, f"internal.{name}", seconds=seconds)

        cart = CartServiceStub(channel(at.cart_addr, "CartService", "GetCart"))
        ordered_cart = OrderedCartStub(internal(at.cart_internal_addr, "OrderedCart"))
        catalog = ProductCatalogServiceStub(channel(at.product_catalog_addr, "ProductCatalogService", "GetProduct"))
        currency = CurrencyServiceStub(channel(at.currency_addr, "CurrencyService", "Convert"))
        to_shipping = channel(at.shipping_addr, "ShippingService", "GetQuote")
        shipping = ShippingServiceStub(to_shipping)
        manifest = ShipmentManifestStub(internal(at.shipping_internal_addr, "ShipmentManifest", SHIP_SECONDS))
        payment = PaymentServiceStub(channel(at.payment_addr, "PaymentService", seconds=_CHARGE_SECONDS))
        ledger = PaymentLedgerStub(internal(at.payment_internal_addr, "PaymentLedger", _CHARGE_SECONDS))
        email = EmailServiceStub(channel(at.email_addr, "EmailService", seconds=_SEND_SECONDS))
        confirmations = ConfirmationsStub(internal(at.email_internal_addr, "Confirmations", _SEND_SECONDS))
        self.quotes = ShopQuotes(
            cart,
            catalog,
            currency,
            shipping,
            service.telemetry,
            can_ship=lambda: to_shipping.get_state() is grpc.ChannelConnectivity.READY,
            with_generations=bool(at.cart_internal_addr),
        )
        self.payment = PaymentClient(payment, ledger)
        self.shipping = ShippingClient(shipping, manifest)
        self.email = EmailClient(email, confirmations, service.telemetry)
        self.cart = CartClient(cart, ordered_cart, service.telemetry)
