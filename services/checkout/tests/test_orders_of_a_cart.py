"""Orders of one cart: by customers who do not wait, after refusals, and after the cart has changed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chassis.errors import FailedPrecondition, InvalidArgument, Unavailable
from shop_kit.checkouts import OTHER_CARD, Checkout, Start
from shop_kit.fake_peers import FakePeer, FakePeers, Fault
from shop_kit.waiting import wait_until

DOWN = Unavailable("down")


def shipped(peers: FakePeers) -> Counter[str]:
    """Return the quantities in all parcels."""
    found: Counter[str] = Counter()
    for parcel in peers.shipping.shipments.values():
        found.update({item.product_id: item.quantity for item in parcel.items})
    return found


@pytest.mark.parametrize("keys", [(None, None), ("first", None), (None, "second"), ("first", "second")])
@pytest.mark.parametrize("changed", [{}, {"credit_card": OTHER_CARD}])
async def test_an_order_during_another_one_buys_what_that_leaves(
    start: Start, peers: FakePeers, keys: tuple[str | None, str | None], changed: dict[str, Any]
) -> None:
    first, second = keys
    async with start() as one, start() as two:
        async with peers.payment.holding("Charge", one.place(first)) as before:
            peers.cart.fill("ann", lamp=1)
            calls = [asyncio.create_task(checkout.place(second, **changed)) for checkout in (one, two)]
            await wait_until(lambda: peers.cart.calls["GetCart"] >= 3)
        placed = {(await call).response.order.order_id for call in (before, *calls)}
    assert shipped(peers) == {"mug": 2, "lamp": 1}
    assert len(placed) == len(peers.payment.captured) == 2
    assert "ann" not in peers.cart.lines


@pytest.mark.parametrize(("peer", "method"), [("payment", "Charge"), ("shipping", "ShipOrder")])
async def test_an_order_during_one_that_is_refused_buys_the_cart(
    checkout: Checkout, peers: FakePeers, peer: str, method: str
) -> None:
    refusing: FakePeer = getattr(peers, peer)
    async with refusing.holding(method, checkout.refused("first")):
        held = refusing.faults[method]
        held.error, held.times = FailedPrecondition("no", reason="REFUSED"), 0
        second = asyncio.create_task(checkout.place("second"))
        await wait_until(lambda: peers.cart.calls["GetCart"] >= 2)
    assert not (await second).replayed
    assert shipped(peers) == {"mug": 2}


async def test_what_another_order_has_bought_since_the_cart_was_read_is_not_bought_again(
    start: Start, peers: FakePeers
) -> None:
    async with start() as one, start() as two:
        async with peers.catalog.holding("GetProduct", one.refused("slow")) as slow:
            peers.catalog.faults.clear()
            peers.cart.fill("ann", lamp=1)
            await two.place("quick")
        assert (await slow).reason == "CART_EMPTY"
    assert shipped(peers) == {"mug": 2, "lamp": 1}


async def test_an_order_waits_for_the_cart_until_its_deadline_and_removes_the_items_of_the_order_before(
    checkout: Checkout, peers: FakePeers
) -> None:
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)
    await checkout.place("first")
    peers.cart.fill("ann", lamp=1)
    assert (await checkout.refused_at_deadline("second")).reason == "ORDER_IN_FLIGHT"
    peers.ordered_cart.faults["RemoveOrdered"].times = 1
    await checkout.place("second")
    assert shipped(peers) == {"mug": 2, "lamp": 1}


@pytest.mark.parametrize(("key", "reason"), [(None, "CARD_EXPIRED"), ("key", "INVALID_ARGUMENT")])
async def test_a_corrected_request_is_the_next_attempt(checkout: Checkout, key: str | None, reason: str) -> None:
    malformed = InvalidArgument.field("credit_card.credit_card_cvv", "is wrong")
    error = malformed if key else FailedPrecondition("no", reason=reason)
    checkout.peers.payment.faults["Charge"] = Fault(error, times=1)
    assert (await checkout.refused(key)).reason == reason
    placed = await checkout.place(key)
    assert not placed.replayed
    assert checkout.peers.payment.captured == [f"{placed.response.order.order_id}:2"]


async def test_a_corrected_card_number_may_have_the_same_key(checkout: Checkout) -> None:
    malformed = InvalidArgument.field("credit_card.credit_card_number", "is wrong")
    checkout.peers.payment.faults["Charge"] = Fault(malformed, times=1)
    await checkout.refused("key")
    await checkout.place("key", credit_card=OTHER_CARD)
    assert (await checkout.refused("key")).reason == "IDEMPOTENCY_KEY_REUSED"


@pytest.fixture
async def abandoned(start: Start, peers: FakePeers) -> AsyncIterator[Checkout]:
    """A checkout with an abandoned order of two mugs under a key."""
    async with start(failpoints="checkout.charge.before=error*1") as checkout:
        await checkout.refused("key")
        await checkout.until_states("ABANDONED")
        assert list(peers.payment.ledger.values()) == ["fenced"]
        yield checkout


@pytest.mark.usefixtures("abandoned")
async def test_an_abandoned_order_begins_again_with_the_current_cart_and_prices(peers: FakePeers, start: Start) -> None:
    peers.cart.lines["ann"] = {"mug": 1}
    peers.catalog.prices["mug"] = 5_000_000_000
    async with start() as checkout:  # without the prices of the first attempt in its cache
        order = (await checkout.place("key")).response.order
    assert [(line.item.quantity, line.cost.units) for line in order.items] == [(1, 10)]
    assert shipped(peers) == {"mug": 1}


async def test_an_abandoned_order_of_what_another_has_bought_is_refused(abandoned: Checkout, peers: FakePeers) -> None:
    await abandoned.place("other")
    assert (await abandoned.refused("key")).reason == "CART_EMPTY"
    assert shipped(peers) == {"mug": 2}
    peers.cart.fill("ann", lamp=1)
    await abandoned.place("key")
    assert shipped(peers) == {"mug": 2, "lamp": 1}
