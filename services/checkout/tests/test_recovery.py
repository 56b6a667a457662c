"""Recovery finishes orders whose workers failed, hung or were superseded, and finishes them once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition, Internal, Unavailable, Unimplemented
from checkout_service import executor, failpoints, outbox, queue_workers
from checkout_service.journal import sql
from shop import checkout_pb2
from shop_internal import orders_pb2
from shop_kit.serving import Recorded
from shop_lab.world.fake_peers import FakePeers, Fault

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
Checkout = Any
Start = Callable[..., Any]


FAULTS = [(point, key) for point in failpoints.ORDER_PATH for key in ("key", None)]


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten loops and leases, so that recovery begins soon."""
    monkeypatch.setattr(queue_workers, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 1.0)
    monkeypatch.setattr(executor, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", 1)


@pytest.fixture
def start(start: Start) -> Start:
    """Start a checkout with a short lease."""

    def starting(address: str, *arguments: Any, lease_seconds: float = 1, **changed: Any) -> Any:
        return start(address, *arguments, lease_seconds=lease_seconds, **changed)

    return starting


@pytest.fixture
async def address(peers: FakePeers) -> AsyncIterator[str]:
    async with peers.serving() as served:
        yield served


async def place_until_success(
    checkout: Checkout, request: checkout_pb2.PlaceOrderRequest, key: str | None
) -> checkout_pb2.PlaceOrderResponse:
    """Repeat the call until it succeeds, as a persistent customer does; raise a refusal."""
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
        while not await condition():  # noqa: ASYNC110 - polls another service by its RPC
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
    assert [key.partition(":")[0] for key in peers.shipping.shipments] == [order.order_id]
    assert {mail.order.SerializeToString() for mail in peers.email.sent} == {order.SerializeToString()}
    assert "ann" not in peers.cart.lines


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_error_at_any_failpoint_ends_in_one_order(
    peers: FakePeers, address: str, start: Start, request_of: Request, fault: tuple[str, str | None]
) -> None:
    point, key = fault
    async with start(address, failpoints=f"{point}=error*1") as checkout:
        response = await place_until_success(checkout, request_of(), key)
        await until_done(checkout)
    assert_one_order(peers, response)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_worker_that_hangs_at_any_failpoint_ends_in_one_order(
    peers: FakePeers, address: str, start: Start, request_of: Request, fault: tuple[str, str | None]
) -> None:
    point, key = fault
    # Twice, because its own recovery may be the first to take the order over; more often would delay the next attempt.
    async with start(address) as other, start(address, failpoints=f"{point}=hang*2") as hanging:
        call = asyncio.create_task(hanging.place(request_of(), key, within=60))
        if point == failpoints.QUOTED:  # nothing is recorded yet
            call.cancel()
        elif point != "checkout.insert.before":
            await until_listed(hanging)  # otherwise the other replica may be first, and nothing hangs
        response = await place_until_success(other, request_of(), key)
        await until_done(other)
        call.cancel()
    assert_one_order(peers, response)


@pytest.mark.parametrize("point", [failpoints.TAKEN_OVER, *failpoints.RESOLVE])
async def test_an_error_in_recovery_ends_in_one_order(
    peers: FakePeers, address: str, start: Start, request_of: Request, point: str
) -> None:
    faults = f"checkout.charge.after=error*1,{point}=error*2"
    async with start(address, failpoints=faults) as checkout:
        response = await place_until_success(checkout, request_of(), "key")
        await until_done(checkout)
    assert_one_order(peers, response)


async def test_recovery_continues_after_one_call_found_no_ledger(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.ledger.faults["ResolveOrFence"] = Fault(Unimplemented("no route"), times=1)
    async with start(address, failpoints="checkout.charge.after=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key")
        await until_done(checkout)
    assert len(peers.payment.captured) == 1


@pytest.mark.parametrize("point", failpoints.VOID)
async def test_an_error_while_voiding_ends_in_a_void(
    peers: FakePeers, address: str, start: Start, request_of: Request, point: str
) -> None:
    peers.shipping.faults["ShipOrder"] = Fault(FailedPrecondition("closed", reason="DEPOT_CLOSED"))
    async with start(address, failpoints=f"{point}=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key")
        await until_states(checkout, "VOIDED")
    assert list(peers.payment.ledger.values()) == ["voided", "fenced"]


async def test_a_superseded_worker_changes_nothing_and_returns_the_same_order(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge", after=True)
    async with start(address) as superseded, start(address) as other:
        call = asyncio.create_task(superseded.place(request_of(), "key", within=60))
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
        (order,) = await until_done(checkout)
    assert order.attempt == 2
    assert_one_order(peers, placed.response)


async def test_an_abandoned_order_is_not_reopened_after_another_order_of_its_cart(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(Unavailable("down"))
    async with start(address, failpoints="checkout.charge.before=error*1") as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of())
        await until_states(checkout, "ABANDONED")
        await checkout.place(request_of(email="ann@elsewhere.example"))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await checkout.place(request_of())
    assert "ordered already" in str(error.value.details())
    assert len(peers.payment.captured) == 1


async def test_different_requests_for_a_cart_at_once_after_an_abandoned_one_charge_once(
    peers: FakePeers, address: str, start: Start, request_of: Request, journal_url: str
) -> None:
    settings = {"database_url": journal_url, "failpoints": "checkout.charge.before=error*1"}
    async with start(address, **settings) as one, start(address, database_url=journal_url) as two:
        with pytest.raises(grpc.aio.AioRpcError):
            await one.place(request_of(), "abandoned")
        await until_states(one, "ABANDONED")
        requests = [(request_of(), "abandoned"), (request_of(), None), (request_of(email="a@elsewhere.example"), None)]
        calls = [checkout.place(*request, within=10) for request in requests for checkout in (one, two)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} - {grpc.aio.AioRpcError}
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_a_restarted_checkout_recovers_its_own_orders_at_once(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.shipping.faults["ShipOrder"] = Fault(Unavailable("down"))
    async with start(address, lease_seconds=3600) as checkout:
        with pytest.raises(grpc.aio.AioRpcError):
            await checkout.place(request_of(), "key", within=2)
    peers.shipping.faults.clear()
    async with start(address) as checkout:
        await until_done(checkout)
    assert len(peers.shipping.shipments) == 1


async def test_an_order_that_always_fails_does_not_delay_others(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.cart.fill("bob", lamp=1)
    peers.shipping.failing_city = "Nowhere"
    failing = request_of()
    failing.address.city = "Nowhere"
    async with start(address, failpoints="checkout.charge.after=error*2") as checkout:
        for request in (failing, request_of(user_id="bob")):
            with pytest.raises(grpc.aio.AioRpcError):
                await checkout.place(request, "key")
        await until_states(checkout, "CHARGING", "DONE")

        async def failed_often() -> bool:
            return any(order.failures >= 3 for order in await checkout.listed())

        await until(failed_often)
        assert (await checkout.place(request_of(user_id="bob"), "key")).replayed


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (5, 32), (9, 300), (5000, 300)])
def test_the_delay_of_an_order_grows_with_its_failures(failures: int, seconds: float) -> None:
    assert queue_workers.retry_delay_seconds(failures) == seconds


async def test_an_email_is_sent_when_its_service_recovers(
    peers: FakePeers, address: str, start: Start, request_of: Request
) -> None:
    peers.email.faults["SendOrderConfirmation"] = Fault(Internal("broken"), times=3)
    async with start(address) as checkout:
        placed = await checkout.place(request_of())
        await until_done(checkout)
    assert_one_order(peers, placed.response)


async def test_shutdown_waits_for_running_orders(
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


async def test_the_trace_of_a_recovery_is_linked_to_that_of_its_order_and_names_it(
    address: str, start: Start, request_of: Request, recorded: Recorded
) -> None:
    async with start(address, recorded.telemetry, failpoints="checkout.charge.after=error*1") as checkout:
        await place_until_success(checkout, request_of(), "key")
        await until_done(checkout)
    placed = next(span for span in recorded.spans() if span.name == "shop.CheckoutService/PlaceOrder")
    recovered = next(span for span in recorded.spans() if span.name == "recover order")
    assert placed.context is not None
    assert [link.context.trace_id for link in recovered.links] == [placed.context.trace_id]
    assert placed.attributes is not None
    assert recovered.attributes is not None
    assert recovered.attributes["shop.order.id"] == placed.attributes["shop.order.id"]
    shipped = next(span for span in recorded.spans() if span.name == "shop.ShippingService/ShipOrder")
    assert recovered.context is not None
    assert shipped.parent is not None
    assert shipped.parent.span_id == recovered.context.span_id
