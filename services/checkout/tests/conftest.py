"""Fixtures of the checkout tests: a journal on either database, fake peers, and a checkout that calls them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import DomainError, Unimplemented
from chassis.rpc import server
from chassis.rpc.status import from_rpc_error
from chassis.telemetry.instruments import Telemetry
from checkout_service import outbox, placing
from checkout_service.__main__ import Settings, build
from checkout_service.journal.opening import MIGRATIONS, open_journal
from checkout_service.peers import channels, shipping
from checkout_service.ports import Journal
from shop import address_pb2, checkout_pb2, checkout_pb2_grpc, payment_pb2
from shop_internal import orders_pb2, orders_pb2_grpc
from shop_kit.databases import execute
from shop_kit.fake_peers import FakePeers
from shop_kit.settings import load_settings
from shop_kit.waiting import wait_until

INTERNAL = ("cart_internal_addr", "shipping_internal_addr", "payment_internal_addr", "email_internal_addr")
PEERS = ("cart_addr", "product_catalog_addr", "shipping_addr", "currency_addr", "payment_addr", "email_addr")


@pytest.fixture(autouse=True)
def _long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a busy machine; the tests of timeouts set their own."""
    monkeypatch.setattr(placing, "READ_WITHIN_SECONDS", 30.0)
    monkeypatch.setattr(channels, "_READ_SECONDS", 30.0)
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 15.0)
    monkeypatch.setattr(shipping, "SHIP_SECONDS", 30.0)


@pytest.fixture(scope="session")
def migrations() -> Path:
    return MIGRATIONS


@pytest.fixture(params=["sqlite", "postgres"])
def journal_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def journal(journal_url: str) -> AsyncIterator[Journal]:
    async with open_journal(journal_url, worker="one") as opened:
        yield opened


@pytest.fixture
async def other_journal(journal_url: str, journal: Journal) -> AsyncIterator[Journal]:  # noqa: ARG001 - opened first
    """The same journal, opened by another replica."""
    async with open_journal(journal_url, worker="two") as opened:
        yield opened


@dataclass(frozen=True)
class Placed:
    """A PlaceOrder that succeeded."""

    response: checkout_pb2.PlaceOrderResponse
    replayed: bool


@dataclass(frozen=True)
class Checkout:
    """Stubs of a running checkout, and its fake peers."""

    orders: checkout_pb2_grpc.CheckoutServiceStub
    journal: orders_pb2_grpc.OrderJournalStub
    quotes: orders_pb2_grpc.OrderQuotesStub
    peers: FakePeers

    async def place(
        self, key: str | None = None, *, expected_total: str | None = None, within: float = 20, **changed: Any
    ) -> Placed:
        """Place Ann's order, with the given fields of the request changed."""
        given = {"idempotency-key": key, "expected-total": expected_total}
        metadata = tuple((name, value) for name, value in given.items() if value is not None)
        call = self.orders.PlaceOrder(request(**changed), timeout=within, metadata=metadata)
        response = await call
        trailers = dict(await call.trailing_metadata())
        return Placed(response, trailers.get("order-replayed") == "true")

    async def refused(self, key: str | None = None, *, within: float = 20, **changed: Any) -> DomainError:
        """Return the error of an order that is not placed, as our clients receive it."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.place(key, within=within, **changed)
        return from_rpc_error(caught.value)

    async def listed(self, **selected: Any) -> list[orders_pb2.Order]:
        return list((await self.journal.ListOrders(orders_pb2.ListOrdersRequest(**selected))).orders)

    async def states(self) -> list[str]:
        return [orders_pb2.OrderState.Name(order.state).removeprefix("ORDER_STATE_") for order in await self.listed()]

    @asynccontextmanager
    async def placing(self, peer: Any, method: str, key: str | None = None) -> AsyncIterator[asyncio.Task[Placed]]:
        """Place an order that waits for a peer until the context ends."""
        gate = peer.hold(method)
        call = asyncio.create_task(self.place(key))
        await wait_until(lambda: peer.calls[method])
        yield call
        gate.set()
        await call

    async def until_done(self, count: int) -> None:
        """Wait until so many orders are done."""

        async def done() -> bool:
            return len(await self.listed(states=[orders_pb2.ORDER_STATE_DONE], limit=1000)) >= count

        await wait_until(done)

    async def until_states(self, *states: str) -> list[orders_pb2.Order]:
        """Wait until there are orders in these states, and return them."""

        async def reached() -> bool:
            return sorted(await self.states()) == sorted(states)

        await wait_until(reached)
        return await self.listed()


Start = Callable[..., AbstractAsyncContextManager[Checkout]]


@pytest.fixture
def peers() -> FakePeers:
    found = FakePeers()
    found.cart.fill("ann", mug=2)
    return found


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def run_sql(database_url: str) -> Callable[[str], None]:
    """Run a statement on the journal's database, whichever it is."""

    def run(statement: str) -> None:
        execute(database_url, statement)

    return run


@pytest.fixture
def lose(run_sql: Callable[[str], None]) -> Callable[[], None]:
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
        telemetry: Telemetry | None = None,
        open_journal: Callable[..., AbstractAsyncContextManager[Journal]] = open_journal,
        *,
        left_out: Sequence[str] = (),
        **changed: Any,
    ) -> AsyncIterator[Checkout]:
        async with AsyncExitStack() as stack:
            for name in left_out:
                getattr(peers, name).fail(Unimplemented("no such method"))
            address = await stack.enter_async_context(peers.serving())
            addresses = dict.fromkeys((*PEERS, *INTERNAL), address)
            values = {**addresses, "database_url": database_url, "hmac_key": "k" * 32, **changed}
            settings = load_settings(Settings, values)
            service = server.Service(settings, telemetry or Telemetry())
            await stack.enter_async_context(server.serving(service, build(settings, service, open_journal)))
            public = grpc.aio.insecure_channel(f"127.0.0.1:{service.port}")
            internal = grpc.aio.insecure_channel(f"127.0.0.1:{service.internal_port}")
            for channel in (public, internal):
                await stack.enter_async_context(channel)
            yield Checkout(
                checkout_pb2_grpc.CheckoutServiceStub(public),
                orders_pb2_grpc.OrderJournalStub(internal),
                orders_pb2_grpc.OrderQuotesStub(internal),
                peers,
            )

    return starting


@pytest.fixture
async def checkout(start: Start) -> AsyncIterator[Checkout]:
    """A checkout on SQLite with working peers."""
    async with start() as running:
        yield running


def request(**changed: Any) -> checkout_pb2.PlaceOrderRequest:
    """Return Ann's request for an order in EUR, with the given fields changed; None leaves a field out."""
    fields = {
        "user_id": "ann",
        "user_currency": "EUR",
        "address": address_pb2.Address(street_address="Main 1", city="Berlin", country="Germany", zip_code=10115),
        "email": "ann@mail.example",
        "credit_card": card(),
        **changed,
    }
    return checkout_pb2.PlaceOrderRequest(**{name: value for name, value in fields.items() if value is not None})


def card(number: str = "4242 4242 4242 4242") -> payment_pb2.CreditCardInfo:
    return payment_pb2.CreditCardInfo(
        credit_card_number=number,
        credit_card_cvv=123,
        credit_card_expiration_year=2035,
        credit_card_expiration_month=11,
    )
