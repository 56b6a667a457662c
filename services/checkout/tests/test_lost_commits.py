"""The journal loses its latest commits, as after a failover to an asynchronous standby or from a restored back-up."""

from collections.abc import AsyncIterator, Callable

import pytest

from chassis.errors import FailedPrecondition, Unavailable
from checkout_service import executor
from checkout_service.domain import Order
from shop_kit.checkouts import OTHER_CARD, Checkout, Start
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.waiting import wait_for_result

RunSql = Callable[[str], object]
Lose = Callable[[], None]

DOWN = Unavailable("down")


@pytest.fixture(autouse=True)
def _carts_remain(peers: FakePeers) -> None:
    """A journal that loses an order loses the outbox with it, so that nothing empties the cart."""
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)


@pytest.fixture
async def checkout(start: Start, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Checkout]:
    monkeypatch.setattr(executor, "RETRY_SHARE_OF_LEASE", 0.0)  # a step in doubt is left to recovery at once
    async with start() as running:
        yield running


def assert_bought_once(peers: FakePeers) -> None:
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


@pytest.mark.parametrize("key", ["key", None])
async def test_a_repeated_request_returns_the_same_order(checkout: Checkout, lose: Lose, key: str | None) -> None:
    first = await checkout.place(key)
    lose()
    again = await checkout.place(key)
    assert again.response == first.response
    assert_bought_once(checkout.peers)


async def test_an_order_that_was_charged_with_a_purchase_id_is_completed_without_one(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Order, "purchase_id", "")  # as in a release without purchase ids
    checkout.peers.payment.purchases = type("Recorded", (dict,), {"get": lambda *_: "purchase"})()
    checkout.peers.payment.faults["Charge"] = Fault(DOWN, after=True)
    await checkout.refused()
    (state,) = await wait_for_result(checkout.states, lambda states: states != ["CHARGING"])
    assert state in {"SHIPPED", "DONE"}


@pytest.mark.parametrize(("peer", "method"), [("payment", "Charge"), ("shipping", "ShipOrder")])
async def test_an_order_lost_under_its_worker_is_recorded_again(
    checkout: Checkout, peers: FakePeers, lose: Lose, peer: str, method: str
) -> None:
    async with getattr(peers, peer).holding(method, checkout.place("key"), after=True) as placing:
        lose()
    assert (await checkout.place("key")).response == (await placing).response
    assert_bought_once(peers)


async def test_an_order_lost_under_a_worker_that_took_it_over_is_in_progress(checkout: Checkout, lose: Lose) -> None:
    checkout.peers.payment.faults["Charge"] = Fault(FailedPrecondition("no", reason="CARD_EXPIRED"), times=1)
    await checkout.refused(email="bob@mail.example")
    async with checkout.peers.payment.holding("Charge", checkout.refused(), after=True) as call:
        lose()
    error = await call
    assert (type(error), error.reason) == (Unavailable, "ORDER_IN_PROGRESS")
    await checkout.place()
    assert_bought_once(checkout.peers)


async def test_a_lost_order_that_was_shipped_at_another_price_needs_review(checkout: Checkout, lose: Lose) -> None:
    order_id = (await checkout.place("key")).response.order.order_id
    lose()
    checkout.peers.cart.fill("ann", lamp=1)
    error = await checkout.refused("key")
    assert (type(error), error.reason) == (FailedPrecondition, "ORDER_NEEDS_REVIEW")
    assert (error.metadata, await checkout.states()) == ({"order_id": order_id}, ["NEEDS_REVIEW"])
    assert_bought_once(checkout.peers)


async def test_a_lost_charge_of_another_amount_is_voided_before_it_is_shipped(checkout: Checkout, lose: Lose) -> None:
    await checkout.place("key")
    lose()
    checkout.peers.shipping.shipments.clear()
    checkout.peers.cart.fill("ann", lamp=1)
    error = await checkout.refused("key")
    assert (type(error), error.reason) == (FailedPrecondition, "CHARGE_VOIDED")
    assert (checkout.peers.payment.captured, checkout.peers.shipping.shipments) == ([], {})


async def test_recovery_does_not_ship_to_one_address_what_another_request_has_paid(
    checkout: Checkout, lose: Lose, run_sql: RunSql
) -> None:
    await checkout.place()
    lose()
    checkout.peers.shipping.shipments.clear()
    checkout.peers.payment.faults["Charge"] = Fault(DOWN)
    await checkout.refused(credit_card=OTHER_CARD)
    run_sql("UPDATE orders SET lease_until = 0")
    await checkout.until_states("VOIDED")
    assert (checkout.peers.payment.captured, checkout.peers.shipping.shipments) == ([], {})


async def test_the_items_of_a_lost_order_are_not_bought_again_under_another_key(checkout: Checkout, lose: Lose) -> None:
    first = await checkout.place("first")
    lose()
    checkout.peers.cart.fill("ann", lamp=1)
    assert (await checkout.refused("second")).reason == "CART_ORDERED"
    assert_bought_once(checkout.peers)
    del checkout.peers.cart.lines["ann"]["lamp"]
    assert (await checkout.place("first")).response == first.response


@pytest.mark.parametrize(("failures", "reason"), [(0, "ORDER_NEEDS_REVIEW"), (1, "ORDER_IN_PROGRESS")])
async def test_neither_a_repeat_nor_recovery_buys_for_a_lost_order_the_same_items_added_anew(
    checkout: Checkout, lose: Lose, run_sql: RunSql, failures: int, reason: str
) -> None:
    checkout.peers.ordered_cart.faults.clear()
    await checkout.place("key")
    lose()
    checkout.peers.cart.fill("ann", mug=2)
    checkout.peers.payment.faults["Charge"] = Fault(DOWN, times=failures)
    assert (await checkout.refused("key")).reason == reason
    run_sql("UPDATE orders SET lease_until = 0")
    await checkout.until_states("NEEDS_REVIEW")
    assert_bought_once(checkout.peers)
    assert checkout.peers.cart.lines["ann"] == {"mug": 2}
