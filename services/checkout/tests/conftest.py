"""Fixtures of the checkout tests: a journal on either database, fake peers, and a checkout that calls them."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from chassis.errors import Unimplemented
from chassis.rpc import server
from chassis.telemetry.instruments import Telemetry
from checkout_service import outbox, placing, queue_workers
from checkout_service.__main__ import Settings, build
from checkout_service.journal.opening import open_journal
from checkout_service.journal.sql import Journal
from checkout_service.peers import channels, shipping
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_internal.orders_pb2_grpc import OrderJournalStub, OrderQuotesStub
from shop_kit.checkouts import Checkout, Start, peer_addresses
from shop_kit.databases import execute
from shop_kit.fake_peers import FakePeers
from shop_kit.settings import load_settings


@pytest.fixture(autouse=True)
def _long_timeouts_and_short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a busy machine, and look for work often; the tests of times set their own."""
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(placing, "READ_WITHIN_SECONDS", 30.0)
    monkeypatch.setattr(channels, "_READ_SECONDS", 30.0)
    monkeypatch.setattr(channels, "_SEND_SECONDS", 30.0)
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 15.0)
    monkeypatch.setattr(shipping, "SHIP_SECONDS", 30.0)


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def journal(database_url: str) -> AsyncIterator[Journal]:
    async with open_journal(database_url, worker="one") as opened:
        yield opened


@pytest.fixture
async def other_journal(database_url: str, journal: Journal) -> AsyncIterator[Journal]:  # noqa: ARG001 - opened first
    """The same journal, opened by another replica."""
    async with open_journal(database_url, worker="two") as opened:
        yield opened


@pytest.fixture
def peers() -> FakePeers:
    found = FakePeers()
    found.cart.fill("ann", mug=2)
    return found


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def run_sql(database_url: str) -> Callable[[str], object]:
    """Run a statement on the journal's database, whichever it is."""
    return partial(execute, database_url)


@pytest.fixture
def lose(run_sql: Callable[[str], object]) -> Callable[[], None]:
    """Lose all orders, as after a failover to a standby without them."""

    def run() -> None:
        for table in ("orders", "outbox", "order_events"):
            run_sql(f"DELETE FROM {table}")  # noqa: S608 - constants

    return run


@pytest.fixture
def start(peers: FakePeers, database_url: str) -> Start:
    """Start a checkout that calls the fake peers, of which some may be left out, with the given settings changed."""

    @asynccontextmanager
    async def starting(
        telemetry: Telemetry | None = None, *, left_out: Sequence[str] = (), **changed: Any
    ) -> AsyncIterator[Checkout]:
        async with AsyncExitStack() as stack:
            for name in left_out:
                getattr(peers, name).fail(Unimplemented("no such method"))
            address = await stack.enter_async_context(peers.serving())
            values = {**peer_addresses(address), "database_url": database_url, "hmac_key": "k" * 32, **changed}
            settings = load_settings(Settings, values)
            service = server.Service(settings, telemetry or Telemetry())
            await stack.enter_async_context(server.serving(service, build(settings, service)))
            public, internal = [
                await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
                for port in (service.port, service.internal_port)
            ]
            journal, quotes = OrderJournalStub(internal), OrderQuotesStub(internal)
            yield Checkout(CheckoutServiceStub(public), journal, quotes, peers)

    return starting


@pytest.fixture
async def checkout(start: Start) -> AsyncIterator[Checkout]:
    """A checkout on SQLite with working peers."""
    async with start() as running:
        yield running
