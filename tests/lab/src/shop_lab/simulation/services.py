"""Builds the simulated processes from the real services: the only module that depends on how these are built."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from functools import cache
from typing import Any

from typing_extensions import override

import checkout_service.__main__ as checkout
from cart_service.service import CartService
from cart_service.store import MemoryCartStore
from chassis.failpoints import Failpoints
from chassis.sql.database import Database
from chassis.telemetry.instruments import Telemetry
from chassis.values.keys import HmacKeys
from checkout_service.journal.opening import MIGRATIONS as JOURNAL_MIGRATIONS
from checkout_service.journal.sql import Journal
from checkout_service.ports import JournalUnavailable
from email_service.messages import MessageState, NewMessage
from email_service.mime import Sender
from email_service.rendering import ConfirmationTemplates
from email_service.service import EmailService
from email_service.spool.sql import Spool
from payment_service.cards import Brand
from payment_service.domain import LedgerUnavailable, PaymentProcessor
from payment_service.ledger.sql import MIGRATIONS as LEDGER_MIGRATIONS
from payment_service.ledger.sql import SqlLedger
from payment_service.service import PaymentService
from shipping_service.domain import Bracket, ManifestUnavailable, RateCard, Shipper, Zone
from shipping_service.manifest.sql import MIGRATIONS as MANIFEST_MIGRATIONS
from shipping_service.manifest.sql import SqlManifest
from shipping_service.service import ShippingService
from shop_kit.fake_peers.reads import FakeCatalog, FakeCurrency
from shop_kit.serving import registrations
from shop_kit.settings import load_settings
from shop_lab.simulation.disk import Disk, empty_database
from shop_lab.simulation.generated import bytes_to_bytes
from shop_lab.simulation.network import Network
from shop_lab.simulation.processes import Process
from shop_lab.world.later_release import LaterJournal

PRODUCTS = ("bowl", "kettle", "mug", "pan", "plate", "spoon")

LEASE_SECONDS = 3.0
"""Of orders: shorter than the default, so that a run needs fewer turns of the background loops."""

HMAC_KEY = "simulated-key-of-32-characters-or-more"
_CART_TTL_SECONDS = 30 * 24 * 3600.0
_TODAY = date(2026, 1, 1)
_DATABASES = {
    "checkout": (JOURNAL_MIGRATIONS, JournalUnavailable),
    "payment": (LEDGER_MIGRATIONS, LedgerUnavailable),
    "shipping": (MANIFEST_MIGRATIONS, ManifestUnavailable),
}
_NO_FAILPOINTS = Failpoints()
_TELEMETRY = Telemetry()


def load_schemas() -> None:
    """Run all migrations, unless this process has run them: they read the clock and draw random numbers."""
    for migrations, _ in _DATABASES.values():
        empty_database(migrations)


def open_disks(clock: Callable[[], float]) -> dict[str, Disk]:
    """Return an empty disk for each service that has a database."""
    return {name: Disk(migrations, clock, unavailable) for name, (migrations, unavailable) in _DATABASES.items()}


class SimulatedService:
    """The part of a chassis.rpc.server.Service that a service's `build` uses."""

    def __init__(self, network: Network, process: Process) -> None:
        self.telemetry = _TELEMETRY
        self.failpoints = _NO_FAILPOINTS
        self.readiness_checks: list[object] = []  # never run: a simulated process is ready as soon as it serves
        self.is_later = False
        self._network = network
        self._process = process

    def serve(self, *servicers: object) -> None:
        for registration in registrations(servicers):
            self.add_servicer(*registration)

    def add_servicer(self, register: Callable[[Any, Any], None], servicer: object) -> None:
        register(servicer, self)

    add_internal_servicer = add_servicer

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Do nothing: the same methods are registered by name."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Any]) -> None:
        """Serve the methods of a servicer: generated functions register them."""
        for name, handler in method_handlers.items():
            self._process.handlers[f"/{service_name}/{name}"] = bytes_to_bytes(handler)

    def channel(
        self, address: str, service: str, *, timeout_seconds: float, retryable: Sequence[str] = (), checks: object = ()
    ) -> Any:
        """Open a channel, whose calls are not retried: only reads would be."""
        channel = self._network.channel(address.partition(":")[0], timeout_seconds)
        return replace(channel, hidden=("purchase-id",)) if self.is_later else channel


@asynccontextmanager
async def checkout_process(service: SimulatedService, replica: int, database: Database) -> AsyncIterator[None]:
    """Build one of the replicas of checkout on a database."""

    @asynccontextmanager
    async def open_journal(
        _url: str, _telemetry: Telemetry, *, worker: str, lease_seconds: float
    ) -> AsyncIterator[Journal]:
        yield (LaterJournal if service.is_later else Journal)(database, worker, lease_seconds)

    build: Any = checkout.build
    async with build(_checkout_settings(replica), service, open_journal):
        yield


@cache
def _checkout_settings(replica: int) -> checkout.Settings:
    """Return the settings of one of the replicas: the first sends confirmations in batches, the others one by one."""
    peers = ("cart", "product_catalog", "shipping", "currency", "payment", "email")
    addresses = {f"{peer}_addr": f"{peer.replace('_', '-')}:50051" for peer in peers}
    internal = ("cart", "shipping", "payment", *(() if replica else ("email",)))
    addresses |= {f"{peer}_internal_addr": f"{peer}:50052" for peer in internal}
    values = {"hmac_key": HMAC_KEY, "lease_seconds": LEASE_SECONDS, "port": 50051 + replica, **addresses}
    return load_settings(checkout.Settings, values)


def payment(database: Database) -> list[object]:
    brands = frozenset({Brand.VISA, Brand.MASTERCARD})
    keys = HmacKeys.parse(HMAC_KEY)
    ledger = SqlLedger(database)
    processor = PaymentProcessor(ledger, keys, brands, lambda: _TODAY, lambda _reason: None)
    return [PaymentService(processor, ledger)]


class _FixedRates:
    """A data file that never changes."""

    value = RateCard([Zone("all", [Bracket(1, Decimal(5))], Decimal("1.5"))])


def shipping(database: Database) -> list[object]:
    rates: Any = _FixedRates()
    manifest = SqlManifest(database)
    return [ShippingService(rates, Shipper(manifest), manifest)]


def open_carts(clock: Callable[[], float]) -> MemoryCartStore:
    """Return a store that outlives the cart service, as Valkey does."""
    return MemoryCartStore(_CART_TTL_SECONDS, clock)


def cart(carts: MemoryCartStore) -> list[object]:
    return [CartService(carts, _TELEMETRY)]


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


def email(spool: MemorySpool) -> list[object]:
    sender = Sender("Shop", "orders@shop.example")
    return [EmailService(_templates(), None, spool, sender)]


def reads() -> list[object]:
    """Catalog and currency, with fixed prices and rates."""
    catalog = FakeCatalog()
    catalog.prices = {product: 3_990_000_000 + 10**9 * number for number, product in enumerate(PRODUCTS)}
    return [catalog, FakeCurrency()]  # type: ignore[abstract] # it has the method that checkout calls
