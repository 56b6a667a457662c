"""The journal loses its latest commits, as after a failover to an asynchronous standby or from a restored back-up."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from typing import Any

import grpc
import pytest

from chassis.errors import DomainError, FailedPrecondition, Unavailable
from chassis.rpc.status import from_rpc_error
from checkout_service import queue_workers
from shop import checkout_pb2, payment_pb2
from shop_lab.world.fake_peers import FakePeers, Fault

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
RunSql = Callable[[str], None]
Checkout = Any
Start = Callable[..., Any]

DOWN = Unavailable("down")
KEYS = pytest.mark.parametrize("key", ["key", None])


@pytest.fixture(autouse=True)
def _carts_remain(peers: FakePeers) -> None:
    """A journal that loses an order loses the outbox with it, so that nothing empties the cart."""
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)


@pytest.fixture
def run_sql(database_url: str) -> RunSql:
    def run(statement: str) -> None:
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(statement)

    return run


@pytest.fixture
def lose(run_sql: RunSql) -> Callable[[], None]:
    """Lose all orders."""

    def run() -> None:
        for table in ("orders", "outbox", "order_events"):
            run_sql(f"DELETE FROM {table}")  # noqa: S608 - constants

    return run


@pytest.fixture
async def checkout(peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Checkout]:
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.05)
    async with peers.serving() as address, start(address) as running:
        yield running


async def refusal(call: Awaitable[Any]) -> DomainError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - polls another service by its RPC
            await asyncio.sleep(0.02)


def is_called(peer: Any, method: str) -> Callable[[], Awaitable[bool]]:
    async def called() -> bool:
        return bool(peer.calls[method])

    return called


@KEYS
async def test_a_repeated_request_returns_the_same_order(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None], key: str | None
) -> None:
    first = await checkout.place(request_of(), key)
    lose()
    again = await checkout.place(request_of(), key)
    assert again.response == first.response
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


@pytest.mark.parametrize("call", [("payment", "Charge"), ("shipping", "ShipOrder")])
async def test_an_order_lost_under_its_worker_is_recorded_again(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None], call: tuple[str, str]
) -> None:
    peer, method = getattr(peers, call[0]), call[1]
    gate = peer.hold(method, after=True)
    placing = asyncio.create_task(checkout.place(request_of(), "key"))
    await until(is_called(peer, method))
    lose()
    gate.set()
    placed = await placing
    assert (await checkout.place(request_of(), "key")).response == placed.response
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_an_order_lost_under_a_worker_that_took_it_over_is_in_progress(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    peers.payment.faults["Charge"] = Fault(FailedPrecondition("no", reason="CARD_EXPIRED"), times=1)
    await refusal(checkout.place(request_of(email="bob@mail.example")))
    gate = peers.payment.hold("Charge", after=True)
    calls = peers.payment.calls["Charge"]
    call = asyncio.create_task(refusal(checkout.place(request_of())))

    async def charged() -> bool:
        return peers.payment.calls["Charge"] > calls

    await until(charged)
    lose()
    gate.set()
    error = await call
    assert (type(error), error.reason) == (Unavailable, "ORDER_IN_PROGRESS")
    await checkout.place(request_of())
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_a_refusal_of_an_order_that_was_lost_under_its_worker_is_not_recorded(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    peers.payment.faults["Charge"] = Fault(FailedPrecondition("no", reason="CARD_EXPIRED"), times=1)
    gate = peers.ledger.hold("ResolveOrFence")
    call = asyncio.create_task(refusal(checkout.place(request_of(), "key")))
    await until(is_called(peers.ledger, "ResolveOrFence"))
    lose()
    gate.set()
    assert (await call).reason == "ORDER_IN_PROGRESS"
    assert await checkout.states() == []
    await checkout.place(request_of(), "key")
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_an_attempt_that_was_fenced_is_followed_by_the_next(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    order_id = (await checkout.place(request_of(), "key")).response.order.order_id
    lose()
    peers.payment.ledger[f"{order_id}:1"] = "fenced"
    peers.shipping.shipments.clear()
    placed = await checkout.place(request_of(), "key")
    (order,) = await checkout.listed()
    assert (placed.response.order.order_id, order.attempt) == (order_id, 2)
    assert peers.payment.captured == [f"{order_id}:2"]


async def test_recovery_finds_the_charge_of_an_attempt_that_was_lost(
    checkout: Checkout, peers: FakePeers, request_of: Request, run_sql: RunSql
) -> None:
    placed = await checkout.place(request_of(), "key")
    order_id = placed.response.order.order_id
    peers.payment.ledger[f"{order_id}:2"] = "charged"
    peers.payment.requests[f"{order_id}:2"] = peers.payment.requests.pop(f"{order_id}:1")
    peers.payment.ledger[f"{order_id}:1"] = "fenced"
    peers.shipping.shipments.clear()
    run_sql("DELETE FROM outbox")
    run_sql("UPDATE orders SET state = 'CHARGING', attempt = 1, lease_until = 0")

    async def shipped() -> bool:
        return bool(await checkout.states() == ["SHIPPED"])

    await until(shipped)
    assert list(peers.shipping.shipments) == [f"{order_id}:2"]
    assert peers.payment.captured == [f"{order_id}:2"]


async def test_a_lost_order_that_was_shipped_at_another_price_needs_review(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    await checkout.place(request_of(), "key")
    lose()
    peers.cart.fill("ann", lamp=1)
    error = await refusal(checkout.place(request_of(), "key"))
    (order,) = await checkout.listed()
    assert (type(error), error.reason) == (FailedPrecondition, "ORDER_NEEDS_REVIEW")
    assert error.metadata == {"order_id": order.order_id}
    assert await checkout.states() == ["NEEDS_REVIEW"]
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_a_lost_charge_of_another_amount_is_voided_before_it_is_shipped(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    await checkout.place(request_of(), "key")
    lose()
    peers.shipping.shipments.clear()
    peers.cart.fill("ann", lamp=1)
    error = await refusal(checkout.place(request_of(), "key"))
    assert (type(error), error.reason) == (FailedPrecondition, "CHARGE_VOIDED")
    assert (peers.payment.captured, peers.shipping.shipments) == ([], {})


async def test_recovery_does_not_ship_to_one_address_what_another_request_has_paid(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None], run_sql: RunSql
) -> None:
    await checkout.place(request_of())
    lose()
    peers.shipping.shipments.clear()
    peers.payment.faults["Charge"] = Fault(DOWN)
    other = payment_pb2.CreditCardInfo(credit_card_number="5555 5555 5555 4444", credit_card_expiration_year=2035)
    await refusal(checkout.place(request_of(credit_card=other)))
    run_sql("UPDATE orders SET lease_until = 0")

    async def ended() -> bool:
        return bool(await checkout.states() == ["VOIDED"])

    await until(ended)
    assert (peers.payment.captured, peers.shipping.shipments) == ([], {})


async def test_another_card_for_a_cart_whose_order_was_lost_is_not_charged(
    checkout: Checkout, peers: FakePeers, request_of: Request, lose: Callable[[], None]
) -> None:
    await checkout.place(request_of())
    lose()
    other = payment_pb2.CreditCardInfo(credit_card_number="5555 5555 5555 4444", credit_card_expiration_year=2035)
    error = await refusal(checkout.place(request_of(credit_card=other)))
    assert error.reason == "ORDER_NEEDS_REVIEW"
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1
