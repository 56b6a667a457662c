"""Builds the simulated processes from the real services: the only module that depends on how these are built."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from functools import cache
from typing import Any

from typing_extensions import override

import checkout_service.__main__ as checkout
from cart_service.service import CartService, OrderedCart
from cart_service.store import MemoryCartStore
from chassis.failpoints import Failpoints
from chassis.sql.database import Database
from chassis.sql.retention import Retention
from chassis.telemetry.instruments import Telemetry
from chassis.values.keys import HmacKeys
from chassis.values.money import Money
from checkout_service.journal.opening import MIGRATIONS as JOURNAL_MIGRATIONS
from checkout_service.journal.sql import SqlJournal
from checkout_service.ports import Journal
from email_service.acceptance import Acceptance
from email_service.messages import MessageState, NewMessage
from email_service.mime import Sender
from email_service.product_names import ProductNames
from email_service.rendering import ConfirmationTemplates
from email_service.service import Confirmations, EmailService
from email_service.spool.sql import Spool
from payment_service.cards import Brand
from payment_service.domain import PaymentProcessor
from payment_service.ledger.sql import MIGRATIONS as LEDGER_MIGRATIONS
from payment_service.ledger.sql import SqlLedger
from payment_service.service import PaymentLedger, PaymentService
from shipping_service.domain import Bracket, RateCard, Shipper, Zone
from shipping_service.manifest.sql import MIGRATIONS as MANIFEST_MIGRATIONS
from shipping_service.manifest.sql import SqlManifest
from shipping_service.service import ShipmentManifest, ShippingService
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
from shop_kit.fake_peers.reads import FakeCatalog, FakeCurrency
from shop_kit.settings import load_settings
from shop_lab.simulation.disk import Disk, schema_of
from shop_lab.simulation.network import Network, bytes_to_bytes
from shop_lab.simulation.processes import Process

PRODUCTS = ("bowl", "kettle", "mug", "pan", "plate", "spoon")

LEASE_SECONDS = 3.0
"""Of orders: shorter than the default, so that a run needs fewer turns of the background loops."""

HMAC_KEY = "simulated-key-of-32-characters-or-more"
_CART_TTL_SECONDS = 30 * 24 * 3600.0
_TODAY = date(2026, 1, 1)
_MIGRATIONS = {"checkout": JOURNAL_MIGRATIONS, "payment": LEDGER_MIGRATIONS, "shipping": MANIFEST_MIGRATIONS}
_NO_FAILPOINTS = Failpoints()
_TELEMETRY = Telemetry()


def load_schemas() -> None:
    """Run all migrations, unless this process has run them: they read the clock and draw random numbers."""
    for migrations in _MIGRATIONS.values():
        schema_of(migrations)


def open_disk(database: str, clock: Callable[[], float]) -> Disk:
    """Return an empty disk for the database of a service."""
    return Disk(schema_of(_MIGRATIONS[database]), clock)


class SimulatedService:
    """The part of a chassis.rpc.server.Service that a service's `build` uses."""

    def __init__(self, network: Network, process: Process) -> None:
        self.telemetry = _TELEMETRY
        self.failpoints = _NO_FAILPOINTS
        self._network = network
        self._process = process

    def add_servicer(self, register: Callable[[Any, Any], None], servicer: object) -> None:
        register(servicer, self)

    add_internal_servicer = add_servicer

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Do nothing: the same methods are registered by name."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a servicer: generated functions register them."""
        for name, handler in method_handlers.items():
            self._process.handlers[f"/{service_name}/{name}"] = bytes_to_bytes(handler)

    def add_readiness_check(self, check: object) -> None:
        """Do nothing: a simulated process is ready as soon as it serves."""

    def channel(
        self, address: str, service: str, *, timeout_seconds: float, retryable: Sequence[str] = (), checks: object = ()
    ) -> Any:
        return self._network.channel(address.partition(":")[0], timeout_seconds, retryable)


@asynccontextmanager
async def checkout_process(
    service: SimulatedService, settings: checkout.Settings, database: Database
) -> AsyncIterator[None]:
    """Build checkout on a database."""

    @asynccontextmanager
    async def open_journal(
        _url: str, _telemetry: Telemetry, *, worker: str, lease_seconds: float
    ) -> AsyncIterator[Journal]:
        yield SqlJournal(database, worker, lease_seconds)

    build: Any = checkout.build
    async with build(settings, service, open_journal):
        yield


@cache
def checkout_settings(replica: int) -> checkout.Settings:
    """Return the settings of one of the replicas: the first sends confirmations in batches, the others one by one."""
    peers = ("cart", "product_catalog", "shipping", "currency", "payment", "email")
    addresses = {f"{peer}_addr": f"{peer.replace('_', '-')}:50051" for peer in peers}
    internal = ("cart", "shipping", "payment", *(() if replica else ("email",)))
    addresses |= {f"{peer}_internal_addr": f"{peer}:50052" for peer in internal}
    values = {"hmac_key": HMAC_KEY, "lease_seconds": LEASE_SECONDS, "port": 50051 + replica, **addresses}
    return load_settings(checkout.Settings, values)


def register_payment(service: SimulatedService, database: Database) -> None:
    brands = frozenset({Brand.VISA, Brand.MASTERCARD})
    keys = HmacKeys.parse(HMAC_KEY)
    processor = PaymentProcessor(SqlLedger(database), keys, brands, lambda: _TODAY, lambda _reason: None)
    charges, ledger = PaymentService(processor, _NO_FAILPOINTS), PaymentLedger(processor, _NO_FAILPOINTS)
    service.add_servicer(payment_pb2_grpc.add_PaymentServiceServicer_to_server, charges)
    service.add_internal_servicer(payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, ledger)


class _FixedRates:
    """A data file that never changes."""

    value = RateCard({}, Zone("all", [Bracket(1, Money.of("USD", 5, 0))], Money.of("USD", 1, 500_000_000)))


def register_shipping(service: SimulatedService, database: Database) -> None:
    rates: Any = _FixedRates()
    stored = SqlManifest(database)
    retention = Retention(stored.delete_old, days=365, rows="entries")
    shipper = Shipper(stored, lambda: retention.complete_since)
    shipping = ShippingService(rates, shipper, _NO_FAILPOINTS)
    manifest = ShipmentManifest(shipper, _NO_FAILPOINTS)
    service.add_servicer(shipping_pb2_grpc.add_ShippingServiceServicer_to_server, shipping)
    service.add_internal_servicer(shipment_manifest_pb2_grpc.add_ShipmentManifestServicer_to_server, manifest)


def open_carts(clock: Callable[[], float]) -> MemoryCartStore:
    """Return a store that outlives the cart service, as Valkey does."""
    return MemoryCartStore(_CART_TTL_SECONDS, clock)


def register_cart(service: SimulatedService, carts: MemoryCartStore) -> None:
    service.add_servicer(cart_pb2_grpc.add_CartServiceServicer_to_server, CartService(carts, Telemetry()))
    service.add_internal_servicer(ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server, OrderedCart(carts))


class MemorySpool(Spool):
    """Accepted messages by id; a repeated one leaves the first as it is. The simulation has no relay."""

    def __init__(self) -> None:
        self.messages: dict[str, NewMessage] = {}

    @override
    async def add(self, messages: Sequence[NewMessage]) -> Mapping[str, MessageState]:
        for message in messages:
            self.messages.setdefault(message.message_id, message)
        return {message.message_id: MessageState.QUEUED for message in messages}


@cache
def _templates() -> ConfirmationTemplates:
    return ConfirmationTemplates()


def register_email(service: SimulatedService, spool: MemorySpool) -> None:
    sender = Sender("Shop", "orders@shop.example")
    acceptance = Acceptance(_templates(), ProductNames(None), spool, sender, failpoints=_NO_FAILPOINTS)
    service.add_servicer(email_pb2_grpc.add_EmailServiceServicer_to_server, EmailService(acceptance))
    service.add_internal_servicer(confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, Confirmations(acceptance))


def register_reads(service: SimulatedService) -> None:
    """Serve catalog and currency: fixed prices and rates."""
    catalog = FakeCatalog()
    catalog.prices = {product: 3_990_000_000 + 10**9 * number for number, product in enumerate(PRODUCTS)}
    service.add_servicer(product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, catalog)
    service.add_servicer(currency_pb2_grpc.add_CurrencyServiceServicer_to_server, FakeCurrency())  # type: ignore[abstract] # it has the method that checkout calls
