"""Orders whose workers fail, hang or lose them are finished by recovery, once, whatever happened when."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition, Internal, Unavailable
from checkout_service import executor, failpoints, journal_sql, outbox, recovery
from checkout_service.journal import Journal, NewOrder
from shop import checkout_pb2
from shop_internal import orders_pb2
from shop_testkit.fake_peers import FakePeers, Trouble
from shop_testkit.serving import Recorded

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
Checkout = Any
Start = Callable[..., Any]


FAULTS = [(point, key) for point in failpoints.ORDER_PATH for key in ("key", None)]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short turns and leases; nothing else depends on time."""
    monkeypatch.setattr(recovery, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 1.0)
    monkeypatch.setattr(executor, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "_TURN_SECONDS", 0.05)
    monkeypatch.setattr(journal_sql, "OUTBOX_LEASE_SECONDS", 1)


@pytest.fixture
def start(start: Start) -> Start:
    """As ever, but for the lease."""

    def starting(address: str, *arguments: Any, lease_seconds: float = 1, **changed: Any) -> Any:
        return start(address, *arguments, lease_seconds=lease_seconds, **changed)

    return starting


@pytest.fixture
async def address(peers: FakePeers) -> AsyncIterator[str]:
    async with peers.serving() as served:
        yield served


async def place_until_answered(
    checkout: Checkout, request: checkout_pb2.PlaceOrderRequest, key: str | None
) -> checkout_pb2.PlaceOrderResponse:
    """What a customer does who wants the order: repeat the call until it succeeds."""
    async with asyncio.timeout(60):
        while True:
            try:
                response: checkout_pb2.PlaceOrderResponse = (await checkout.place(request, key, within=2)).response
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                await asyncio.sleep(0.05)
            else:
                return response


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - the state of another service, by its own RPC
            await asyncio.sleep(0.05)


async def until_states(checkout: Checkout, *states: str) -> None:
    async def reached() -> bool:
        return sorted(await checkout.states()) == sorted(states)

    await until(reached)


async def until_listed(checkout: Checkout) -> None:
    async def listed() -> bool:
        return bool(await checkout.listed())

    await until(listed)


async def until_done(checkout: Checkout) -> list[orders_pb2.Order]:
    await until_states(checkout, "DONE")
    orders: list[orders_pb2.Order] = await checkout.listed()
    return orders


def assert_one_order(peers: FakePeers, response: checkout_pb2.PlaceOrderResponse) -> None:
    order = response.order
    assert len(peers.payment.captured) == 1
    assert list(peers.shipping.shipments) == [order.order_id]
    assert {mail.order.SerializeToString() for mail in peers.email.sent} == {order.SerializeToString()}
    assert "ann" not in peers.cart.lines


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_error_at_any_point_ends_in_one_order(
    peers: FakePeers, address: str, start: Start, request_of: Request, fault: tuple[str, str | None]
) -> None:
    point, key = fault
    async with start(address, failpoints=f"{point}=error*1") as checkout:
        response = await place_until_answered(checkout, request_of(), key)
        await until_done(checkout)
    assert_one_order(peers, response)


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_order_whose_worker_hangs_at_any_point_is_finished_once(
    peers: FakePeers, address: str, start: Start, request_of: Request, fault: tuple[str, str | None]
) -> None:
    point, key = fault
    # Twice, for its own recovery may be the first to take the order up: the more often, the longer until the next try.
    async with start(address) as other, start(address, failpoints=f"{point}=hang*2") as hanging:
        call = asyncio.create_task(hanging.place(request_of(), key, within=60))
        if point == failpoints.QUOTED:  # nothing was begun
            call.cancel()
        elif point != "checkout.insert.before":
            await until_listed(hanging)  # else the other one may be the first, and nothing hangs
        response = await place_until_answered(other, request_of(), key)
        await until_done(other)
        call.cancel()
    assert_one_order(peers, response)


@pytest.mark.parametrize("point", [failpoints.TAKEN_OVER, *failpoints.RESOLVE])
async def test_an_error_in_recovery_ends_in_one_order(
    peers: FakePeers, address: str, start: Start, request_of: Request, point: str
) -> None:
    faults = f"checkout.charge.after=error*1,{point}=error*2"
    async with start(address, failpoints=faults) as checkout:
        response = await place_until_answered(checkout, request_of(), "key")
        await until_done(checkout)
    assert_one_order(peers, response)


@pytest.mark.parametrize("point", failpoints.VOID)
async def test_an_error_while_voiding_ends_in_a_void(
    peers: FakePeers, address: str, start: Start, request_of: Request, point: str
) -> None:
    peers.shipping.trouble["ShipOrder"] = Trouble(FailedPrecondition("closed", reason="DEPOT_CLOSED"))
    async with start(address, failpoints=f"{point}=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key")
        await until_states(checkout, "VOIDED")
    assert list(peers.payment.ledger.values()) == ["voided"]


async def test_a_stale_worker_changes_nothing_and_answers_as_the_other_did(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge", after=True)
    async with start(address) as stale, start(address) as other:
        call = asyncio.create_task(stale.place(request_of(), "key", within=60))
        orders = await until_done(other)
        gate.set()
        response = (await call).response
        history = await other.journal.GetOrder(orders_pb2.GetOrderRequest(order_id=orders[0].order_id))
    assert_one_order(peers, response)
    assert [event.epoch for event in history.history if event.step == "shipped"] == [2]


async def test_an_order_that_was_never_charged_is_abandoned_and_fenced(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    async with start(address, failpoints="checkout.charge.before=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key")
        await until_states(checkout, "ABANDONED")
        assert list(peers.payment.ledger.values()) == ["fenced"]
        placed = await checkout.place(request_of(), "key")
        (order,) = await checkout.listed()
    assert order.attempt == 2
    assert_one_order(peers, placed.response)


async def test_an_abandoned_order_is_not_reopened_when_another_one_has_its_cart(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.cart.trouble["EmptyCart"] = Trouble(Unavailable("down"))
    async with start(address, failpoints="checkout.charge.before=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of())
        await until_states(checkout, "ABANDONED")
        await checkout.place(request_of(email="ann@elsewhere.example"))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await checkout.place(request_of())
    assert "ordered already" in str(error.value.details())
    assert len(peers.payment.captured) == 1


async def test_a_restarted_checkout_takes_up_its_orders_at_once(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.shipping.trouble["ShipOrder"] = Trouble(Unavailable("down"))
    async with start(address, lease_seconds=3600) as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key", within=2)
    peers.shipping.trouble.clear()
    async with start(address) as checkout:
        await until_done(checkout)
    assert len(peers.shipping.shipments) == 1


async def test_a_poisoned_order_holds_up_no_other(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.cart.fill("bob", lamp=1)
    peers.shipping.poisoned_city = "Nowhere"
    poisoned = request_of()
    poisoned.address.city = "Nowhere"
    async with start(address, failpoints="checkout.charge.after=error*2") as checkout:
        for request in (poisoned, request_of(user_id="bob")):
            with pytest.raises(grpc.aio.AioRpcError):
                await checkout.place(request, "key")
        await until_states(checkout, "CHARGING", "DONE")

        async def failed_often() -> bool:
            return max(order.failures for order in await checkout.listed()) >= 3

        await until(failed_often)
        assert (await checkout.place(request_of(user_id="bob"), "key")).replayed


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (5, 32), (9, 300), (5000, 300)])
async def test_an_order_that_fails_again_waits_ever_longer(
    journal: Journal, new_order: Callable[..., NewOrder], failures: int, seconds: float
) -> None:
    await journal.insert(new_order())
    entry = await journal.find("scope")
    assert entry is not None
    assert recovery.work_on(replace(entry, failures=failures)).leave_seconds == seconds


async def test_an_email_is_sent_when_its_service_is_back(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.email.trouble["SendOrderConfirmation"] = Trouble(Internal("broken"), times=3)
    async with start(address) as checkout:
        placed = await checkout.place(request_of())
        await until_done(checkout)
    assert_one_order(peers, placed.response)


async def test_leaving_waits_for_the_orders_under_way(
    peers: FakePeers, address: str, start: Start, request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_CLOSE_WITHIN_SECONDS", 30.0)
    monkeypatch.setattr(outbox, "_CLOSE_WITHIN_SECONDS", 30.0)
    gate = peers.payment.hold("Charge")
    async with start(address) as checkout:
        call = checkout.orders.PlaceOrder(request_of())

        async def charging() -> bool:
            return peers.payment.calls["Charge"] > 0

        await until(charging)
        call.cancel()
        asyncio.get_running_loop().call_later(0.2, gate.set)
    async with start(address) as checkout:
        (order,) = await checkout.listed()
    assert (order.state, order.epoch) == (orders_pb2.ORDER_STATE_DONE, 1)


async def test_recovery_is_linked_to_the_trace_of_the_order(
    address: str, start: Start, request_of: Request, recorded: Recorded
) -> None:
    async with start(address, recorded.telemetry, failpoints="checkout.charge.after=error*1") as checkout:
        await place_until_answered(checkout, request_of(), "key")
        await until_done(checkout)
    placed = next(span for span in recorded.spans() if span.name == "shop.CheckoutService/PlaceOrder")
    recovered = next(span for span in recorded.spans() if span.name == "recover order")
    assert placed.context is not None
    assert [link.context.trace_id for link in recovered.links] == [placed.context.trace_id]
    shipped = next(span for span in recorded.spans() if span.name == "shop.ShippingService/ShipOrder")
    assert recovered.context is not None
    assert shipped.parent is not None
    assert shipped.parent.span_id == recovered.context.span_id
