"""Recovery finishes orders whose workers failed, hung or were superseded, and finishes them once."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition
from checkout_service import executor, failpoints, outbox, queue_workers
from checkout_service.journal import sql
from shop import checkout_pb2
from shop_internal import orders_pb2
from shop_kit.checkouts import Checkout, Start
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.waiting import wait_until

FAULTS = [(point, key) for point in failpoints.ORDER_PATH for key in ("key", None)]
ERRORS = [
    *((f"{point}=error*1", key) for point, key in FAULTS),
    *(
        (f"checkout.charge.after=error*1,{point}=error*2", "key")
        for point in (failpoints.TAKEN_OVER, *failpoints.RESOLVE)
    ),
]
# An order without a key has its scope from elsewhere, but is taken over in the same way.
HANGS = [pytest.param(fault, marks=() if fault[1] else pytest.mark.long) for fault in FAULTS]


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten loops and leases, so that recovery begins soon."""
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 1.0)
    monkeypatch.setattr(executor, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(outbox, "_CLOSE_WITHIN_SECONDS", 0.1)
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", 1)


@pytest.fixture
def start(start: Start) -> Start:
    """Start a checkout with a short lease."""
    return partial(start, lease_seconds=1)


async def test_a_restarted_checkout_resumes_its_own_orders_before_their_leases_end(
    start: Start, run_sql: Callable[[str], object]
) -> None:
    async with start() as checkout:
        await checkout.place("key")
        await checkout.until_done(1)
    run_sql(f"UPDATE orders SET state = 'CHARGING', lease_until = {time.time() + 300}")  # noqa: S608 - a constant
    async with start() as checkout:
        await checkout.until_done(1)


async def place_until_success(checkout: Checkout, key: str | None) -> checkout_pb2.PlaceOrderResponse:
    """Repeat the call until it succeeds, as a persistent customer does; raise a refusal."""
    while True:
        try:
            response: checkout_pb2.PlaceOrderResponse = (await checkout.place(key, within=2)).response
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise
            await asyncio.sleep(0.05)
        else:
            return response


def assert_one_order(peers: FakePeers, response: checkout_pb2.PlaceOrderResponse) -> None:
    order = response.order
    assert len(peers.payment.captured) == 1
    assert [key.partition(":")[0] for key in peers.shipping.shipments] == [order.order_id]
    assert {mail.order.SerializeToString() for mail in peers.email.sent} == {order.SerializeToString()}
    assert "ann" not in peers.cart.lines


@pytest.mark.parametrize(("errors", "key"), ERRORS)
async def test_an_error_at_any_failpoint_and_then_in_recovery_ends_in_one_order(
    peers: FakePeers, start: Start, errors: str, key: str | None
) -> None:
    async with start(failpoints=errors) as checkout:
        response = await place_until_success(checkout, key)
        await checkout.until_states("DONE")
    assert_one_order(peers, response)


@pytest.mark.parametrize("fault", HANGS)
async def test_a_worker_that_hangs_at_any_failpoint_ends_in_one_order(
    peers: FakePeers, start: Start, fault: tuple[str, str | None]
) -> None:
    point, key = fault
    # Twice, because its own recovery may be the first to take the order over; more often would delay the next attempt.
    async with start() as other, start(failpoints=f"{point}=hang*2") as hanging:
        call = asyncio.create_task(hanging.place(key, within=60))
        if point == failpoints.QUOTED:  # nothing is recorded yet
            call.cancel()
        elif point != "checkout.insert.before":
            await wait_until(hanging.listed)  # otherwise the other replica may be first, and nothing hangs
        response = await place_until_success(other, key)
        await other.until_states("DONE")
        call.cancel()
    assert_one_order(peers, response)


@pytest.mark.parametrize("point", failpoints.VOID)
async def test_an_error_while_voiding_ends_in_a_void(peers: FakePeers, start: Start, point: str) -> None:
    peers.shipping.faults["ShipOrder"] = Fault(FailedPrecondition("closed", reason="DEPOT_CLOSED"))
    async with start(failpoints=f"{point}=error*1") as checkout:
        await checkout.refused("key")
        await checkout.until_states("VOIDED")
    assert list(peers.payment.ledger.values()) == ["voided", "fenced"]


async def test_a_superseded_worker_changes_nothing_and_returns_the_same_order(peers: FakePeers, start: Start) -> None:
    async with start() as superseded, start() as other:
        async with peers.payment.holding("Charge", superseded.place("key", within=60), after=True) as call:
            (order,) = await other.until_states("DONE")
        history = (await other.shown(order.order_id)).history
    assert_one_order(peers, (await call).response)
    assert [event.epoch for event in history if event.step == "shipped"] == [2]


async def test_different_requests_for_a_cart_at_once_after_an_abandoned_one_charge_once(
    peers: FakePeers, start: Start, journal_url: str
) -> None:
    settings = {"database_url": journal_url, "failpoints": "checkout.charge.before=error*1"}
    async with start(**settings) as one, start(database_url=journal_url) as two:
        await one.refused("abandoned")
        await one.until_states("ABANDONED")
        requests: list[dict[str, Any]] = [{"key": "abandoned"}, {}, {"email": "a@elsewhere.example"}]
        calls = [checkout.place(within=10, **request) for request in requests for checkout in (one, two)]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} - {grpc.aio.AioRpcError}
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_a_restarted_checkout_recovers_its_own_orders_at_once(peers: FakePeers, start: Start) -> None:
    async with start(lease_seconds=3600, failpoints="checkout.charge.after=hang") as checkout:
        call = asyncio.create_task(checkout.refused("key"))
        await wait_until(lambda: peers.payment.captured)
    await asyncio.gather(call, return_exceptions=True)
    async with start() as checkout:
        await checkout.until_states("DONE")
    assert len(peers.shipping.shipments) == 1


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 4), (5, 32), (9, 300), (5000, 300)])
def test_the_delay_of_an_order_grows_with_its_failures(failures: int, seconds: float) -> None:
    assert queue_workers.retry_delay_seconds(failures) == seconds


async def test_a_stop_waits_for_running_orders(peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_CLOSE_WITHIN_SECONDS", 30.0)
    monkeypatch.setattr(outbox, "_CLOSE_WITHIN_SECONDS", 30.0)
    gate = peers.payment.hold("Charge")
    async with start() as checkout:
        call = asyncio.create_task(checkout.place())
        await wait_until(lambda: peers.payment.calls["Charge"])
        call.cancel()
        asyncio.get_running_loop().call_later(0.2, gate.set)
    async with start() as checkout:
        (order,) = await checkout.listed()
    assert (order.state, order.epoch) == (orders_pb2.ORDER_STATE_DONE, 1)
