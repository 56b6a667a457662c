"""Fake peers of checkout: they follow the contract, count their calls, and fail or hang on demand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from shop import (
    cart_pb2_grpc,
    currency_pb2_grpc,
    email_pb2_grpc,
    payment_pb2_grpc,
    product_catalog_pb2_grpc,
    shipping_pb2_grpc,
)
from shop_internal import (
    confirmations_pb2_grpc,
    ordered_cart_pb2_grpc,
    payment_ledger_pb2_grpc,
    shipment_manifest_pb2_grpc,
)
from shop_kit.fake_peers.effects import (
    FakeConfirmations,
    FakeEmail,
    FakeLedger,
    FakeManifest,
    FakePayment,
    FakeShipping,
)
from shop_kit.fake_peers.peer import FakePeer, Fault
from shop_kit.fake_peers.reads import FakeCart, FakeCatalog, FakeCurrency, FakeOrderedCart
from shop_kit.serving import Registration, serve

__all__ = ["FakePeer", "FakePeers", "Fault"]


@dataclass
class FakePeers:
    """The six peers of checkout, and the internal services of cart, payment, shipping and email."""

    cart: FakeCart = field(default_factory=FakeCart)
    catalog: FakeCatalog = field(default_factory=FakeCatalog)
    currency: FakeCurrency = field(default_factory=FakeCurrency)
    shipping: FakeShipping = field(default_factory=FakeShipping)
    payment: FakePayment = field(default_factory=FakePayment)
    email: FakeEmail = field(default_factory=FakeEmail)

    def __post_init__(self) -> None:
        self.ledger = FakeLedger(self.payment)  # type: ignore[abstract] # it has the methods that checkout calls
        self.manifest = FakeManifest(self.shipping)  # type: ignore[abstract] # as above
        self.ordered_cart = FakeOrderedCart(self.cart)
        self.confirmations = FakeConfirmations(self.email)

    @asynccontextmanager
    async def serving(self, **settings: Any) -> AsyncIterator[str]:
        """Serve all of them on one port, with settings of a service; yield its address."""
        registrations: list[Registration] = [
            (cart_pb2_grpc.add_CartServiceServicer_to_server, self.cart),
            (product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, self.catalog),
            (currency_pb2_grpc.add_CurrencyServiceServicer_to_server, self.currency),
            (shipping_pb2_grpc.add_ShippingServiceServicer_to_server, self.shipping),
            (payment_pb2_grpc.add_PaymentServiceServicer_to_server, self.payment),
            (email_pb2_grpc.add_EmailServiceServicer_to_server, self.email),
            (ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server, self.ordered_cart),
            (payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, self.ledger),
            (shipment_manifest_pb2_grpc.add_ShipmentManifestServicer_to_server, self.manifest),
            (confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, self.confirmations),
        ]
        async with serve(*registrations, **settings) as address:
            yield address
