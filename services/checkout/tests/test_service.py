"""PlaceOrder as its callers see it, over real channels, with peers that fail on demand."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from chassis.errors import (
    Aborted,
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    OutOfRange,
    Unavailable,
    Unimplemented,
)
from checkout_service import existing_orders, outbox, placing
from checkout_service.domain import Transition
from checkout_service.journal.sql import Journal
from checkout_service.peers import internal_service
from checkout_service.ports import Entry, JournalUnavailable
from shop.cart_pb2 import CartItem
from shop.order_pb2 import OrderItem, OrderResult
from shop_internal import orders_pb2
from shop_kit.checkouts import OTHER_CARD, Checkout, Start, order_request
from shop_kit.fake_peers import FakePeers, Fault
from shop_kit.fake_peers.peer import money
from shop_kit.waiting import wait_until

DOWN = Unavailable("down")
NO_ROUTE = Unimplemented("a proxy without this route")
EXPIRED = FailedPrecondition("no", reason="CARD_EXPIRED")
CLOSED = FailedPrecondition("closed", reason="DEPOT_CLOSED")


async def until_called(peer: Any, method: str, times: int = 1) -> None:
    await wait_until(lambda: peer.calls[method] >= times)


# Placed orders


async def test_an_order_has_its_costs_in_the_callers_currency(checkout: Checkout) -> None:
    order = (await checkout.place()).response.order
    assert order == OrderResult(
        order_id=order.order_id,
        shipping_tracking_id=f"track-{order.order_id}",
        shipping_cost=money("EUR", 9_990_000_000),
        shipping_address=order_request().address,
        items=[OrderItem(item=CartItem(product_id="mug", quantity=2), cost=money("EUR", 35_960_000_000))],
    )


async def test_costs_are_rounded_to_the_currencys_minor_unit(checkout: Checkout) -> None:
    checkout.peers.cart.fill("ann", lamp=1)
    order = (await checkout.place(user_currency="JPY")).response.order
    # 24.995 USD are 3,749.25 JPY, 4.995 USD are 749.25 JPY.
    costs = [*(line.cost for line in order.items), order.shipping_cost]
    assert costs == [money("JPY", units * 10**9) for units in (2697, 3749, 749)]


@pytest.mark.parametrize(("currency", "conversions"), [("USD", 0), ("EUR", 2)])
async def test_equal_prices_are_converted_once_and_the_same_currency_not_at_all(
    checkout: Checkout, currency: str, conversions: int
) -> None:
    checkout.peers.cart.fill("ann", mug=2, cup=2)
    await checkout.place(user_currency=currency)
    assert checkout.peers.currency.calls["Convert"] == conversions  # one for the lines, one for shipping


async def test_a_second_order_reuses_the_prices_and_the_quote_of_the_first(checkout: Checkout) -> None:
    checkout.peers.shipping.quote_depends_on = "country,pieces"
    await checkout.place("first")
    checkout.peers.cart.fill("ann", mug=2)
    await checkout.place("second")
    assert (checkout.peers.catalog.calls["GetProduct"], checkout.peers.currency.calls["Convert"]) == (1, 2)
    assert checkout.peers.shipping.calls["GetQuote"] == 1


@pytest.fixture
def failures(peers: FakePeers, monkeypatch: pytest.MonkeyPatch) -> list[JournalUnavailable]:
    """Errors of the first updates of the journal, each of which begins after a removal from the cart."""
    update, errors = Journal.update, list[JournalUnavailable]()

    async def update_after_the_removal(journal: Journal, held: Entry, transition: Transition) -> Entry | None:
        await until_called(peers.ordered_cart, "RemoveAllOrdered")
        if errors:
            raise errors.pop()
        return await update(journal, held, transition)

    monkeypatch.setattr(Journal, "update", update_after_the_removal)
    return errors


@pytest.mark.usefixtures("failures")
async def test_the_cart_is_emptied_while_the_shipment_is_recorded(checkout: Checkout) -> None:
    await checkout.place()
    assert checkout.peers.cart.lines.get("ann", {}) == {}
    await checkout.until_states("DONE")


@pytest.mark.parametrize("failed_removals", [0, 1])
async def test_an_order_whose_cart_is_emptied_before_it_can_be_recorded_as_shipped_is_finished(
    start: Start, peers: FakePeers, failures: list[JournalUnavailable], failed_removals: int
) -> None:
    peers.ordered_cart.faults["RemoveAllOrdered"] = Fault(DOWN, times=failed_removals)
    failures.append(JournalUnavailable("down"))
    async with start(lease_seconds=0.5) as checkout:
        assert (await checkout.refused()).reason == "ORDER_IN_PROGRESS"
        peers.cart.fill("ann", pan=1)
        await checkout.until_states("DONE")
    assert peers.cart.lines["ann"] == {"pan": 1}
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


@pytest.mark.parametrize("without", [{"left_out": ["ordered_cart"]}, {"cart_internal_addr": None}])
async def test_a_cart_service_without_ordered_items_empties_the_cart(
    peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch, without: dict[str, Any]
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    peers.cart.has_generations = "left_out" not in without
    async with start(**without) as checkout:
        await checkout.place()
    assert "ann" not in peers.cart.lines


async def test_a_cart_service_without_ordered_items_leaves_a_changed_cart_alone(
    peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    peers.cart.has_generations = False
    async with start(left_out=["ordered_cart"]) as checkout, peers.payment.holding("Charge", checkout.place()):
        peers.cart.fill("ann", lamp=1)
    assert (peers.cart.calls["EmptyCart"], peers.cart.lines["ann"]) == (1, {"mug": 2, "lamp": 1})


# Refused before any effect


@pytest.mark.parametrize(
    ("field", "changed"),
    [
        ("user_currency", {"user_currency": "XXX"}),
        ("address", {"address": None}),
        ("credit_card", {"credit_card": None}),
        *(("idempotency-key", {"key": key}) for key in ("", "a b", "x" * 256)),
    ],
)
async def test_an_invalid_field_is_named_and_nothing_is_charged(
    checkout: Checkout, field: str, changed: dict[str, Any]
) -> None:
    error = await checkout.refused(**{"key": "key", **changed})
    assert isinstance(error, InvalidArgument)
    assert [broken.field for broken in error.violations] == [field]
    assert checkout.peers.payment.ledger == {}


@pytest.mark.parametrize(
    ("lines", "error", "reason"),
    [
        ({}, FailedPrecondition, "CART_EMPTY"),
        ({"gone": 1}, FailedPrecondition, "PRODUCT_WITHDRAWN"),
        ({"rug": 2}, OutOfRange, "AMOUNT_OUT_OF_RANGE"),
        ({"sample": 1}, FailedPrecondition, "NOTHING_TO_PAY"),
        ({"mug": 1}, FailedPrecondition, "QUOTE_REFUSED"),
    ],
)
async def test_a_cart_that_cannot_be_sold_is_refused_before_the_charge(
    checkout: Checkout, lines: dict[str, int], error: type[DomainError], reason: str
) -> None:
    checkout.peers.catalog.prices["sample"] = checkout.peers.shipping.quote_nanos = 0
    if reason == "QUOTE_REFUSED":
        checkout.peers.shipping.faults["GetQuote"] = Fault(InvalidArgument.field("address.country", "is not served"))
    checkout.peers.cart.lines.clear()
    checkout.peers.cart.fill("ann", **lines)
    for key in ("key", None):
        refused = await checkout.refused(key)
        assert (type(refused), refused.reason) == (error, reason)
        assert refused.metadata.get("product_id") == ("gone" if "gone" in lines else None)
    assert checkout.peers.payment.ledger == {}


READS = [("cart", "GetCart"), ("catalog", "GetProduct"), ("shipping", "GetQuote"), ("currency", "Convert")]


@pytest.mark.parametrize("error", [DOWN, Internal("broken"), None], ids=["down", "broken", "hanging"])
@pytest.mark.parametrize("read", READS)
async def test_a_dependency_that_fails_or_hangs_is_unavailable_and_prevents_the_charge(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, read: tuple[str, str], error: DomainError | None
) -> None:
    monkeypatch.setattr(placing, "READ_WITHIN_SECONDS", 1.0)
    peer, method = read
    gate = asyncio.Event()
    getattr(checkout.peers, peer).faults[method] = Fault(error, gate=None if error else gate)
    refused = await checkout.refused(within=60)
    gate.set()
    assert (type(refused), refused.retry_after_seconds, await checkout.states()) == (Unavailable, 1.0, [])
    assert checkout.peers.payment.calls["Charge"] == 0


async def test_an_order_is_not_begun_shortly_before_the_callers_deadline(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "ANSWER_BEFORE_DEADLINE_SECONDS", 3600)
    error = await checkout.refused()
    assert (type(error), error.reason) == (Unavailable, "QUOTES_TOO_SLOW")
    assert checkout.peers.payment.calls["Charge"] == 0


# The card is refused


MALFORMED = InvalidArgument.field("credit_card.credit_card_number", "is wrong")


@pytest.mark.parametrize(("error", "charges"), [(EXPIRED, 1), (MALFORMED, 2)])
async def test_a_refused_card_returns_payments_error_and_so_does_a_retry(
    checkout: Checkout, error: DomainError, charges: int
) -> None:
    checkout.peers.payment.faults["Charge"] = Fault(error)
    for _ in range(2):
        refused = await checkout.refused("key")
        (order,) = await checkout.listed()
        assert (type(refused), refused.message, refused.reason) == (type(error), error.message, error.reason)
        assert getattr(refused, "violations", ()) == getattr(error, "violations", ())
        assert refused.metadata == {"order_id": order.order_id}
        assert order.state == orders_pb2.ORDER_STATE_DECLINED
    assert checkout.peers.payment.calls["Charge"] == charges


@pytest.mark.parametrize("number", ["4242 4242 4242 4242", "42.42.42.42.42.42.42.42", "4242_4242_4242_4242"])
async def test_card_digits_in_payments_error_are_masked(checkout: Checkout, number: str) -> None:
    quoting = FailedPrecondition(f"no: {number}, cvv 123", reason="R4242424242424242")
    checkout.peers.payment.faults["Charge"] = Fault(quoting)
    error = await checkout.refused("key")
    assert error.message == "no: [number], cvv [number]"
    assert error.reason == "PEER_BROKEN"


# In doubt


async def test_a_charge_in_doubt_at_the_deadline_is_an_order_in_progress(checkout: Checkout) -> None:
    gate = checkout.peers.payment.hold("Charge", after=True)
    error = await checkout.refused_at_deadline("key")
    (order,) = await checkout.listed()
    assert (type(error), error.reason, error.retry_after_seconds) == (Unavailable, "ORDER_IN_PROGRESS", 1.0)
    assert error.metadata == {"order_id": order.order_id}
    gate.set()
    await checkout.until_states("DONE")
    assert (await checkout.place("key")).replayed
    assert len(checkout.peers.payment.captured) == 1


@pytest.mark.parametrize(
    "faults",
    [
        {"payment.Charge": Fault(DOWN, times=2)},
        {"payment.Charge": Fault(DOWN, times=2, after=True)},
        {"payment.Charge": Fault(NO_ROUTE, times=1)},
        {"shipping.ShipOrder": Fault(NO_ROUTE, times=1)},
        # Checkout probes the ledger with a Void before it repeats a charge in doubt.
        {"payment.Charge": Fault(DOWN, times=1), "ledger.Void": Fault(CLOSED)},
        # A parcel that was sent is no longer refused.
        {"shipping.ShipOrder": Fault(DOWN, times=1, after=True, then=Fault(CLOSED))},
    ],
)
async def test_a_step_in_doubt_is_retried_under_its_key(
    checkout: Checkout, peers: FakePeers, faults: dict[str, Fault]
) -> None:
    for name, fault in faults.items():
        peer, method = name.split(".")
        getattr(peers, peer).faults[method] = replace(fault)
    order = (await checkout.place("key")).response.order
    assert order.shipping_tracking_id == f"track-{order.order_id}"
    assert list(peers.payment.ledger.values()) == ["charged"]
    assert len(peers.shipping.shipments) == 1


async def test_a_refusal_after_a_charge_in_doubt_is_fenced_first(checkout: Checkout) -> None:
    checkout.peers.payment.faults["Charge"] = Fault(DOWN, times=1, then=Fault(EXPIRED))
    assert (await checkout.refused("key")).reason == "CARD_EXPIRED"
    assert list(checkout.peers.payment.ledger.values()) == ["fenced"]


async def test_a_charge_has_a_timeout_of_its_own(checkout: Checkout) -> None:
    await checkout.place(within=3.5)
    assert 3.5 < checkout.peers.payment.seconds_left <= 5.5


# The outbox


async def test_a_hanging_email_does_not_delay_the_response(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SEND_EMAIL_SECONDS", 600.0)
    gate = checkout.peers.email.hold("SendOrderConfirmation")
    placing = asyncio.create_task(checkout.place(within=600))
    assert await wait_until(placing.done)
    assert checkout.peers.email.sent == []
    gate.set()


# Shipping refuses for good


# The second refusal is of an order that was accepted by an older release.
@pytest.mark.parametrize("refusal", [CLOSED, InvalidArgument.field("address.city", "must not be empty")])
async def test_an_order_that_shipping_refuses_is_fenced_and_voided(checkout: Checkout, refusal: DomainError) -> None:
    checkout.peers.shipping.faults["ShipOrder"] = Fault(refusal)
    error = await checkout.refused("key")
    assert (type(error), error.reason) == (FailedPrecondition, refusal.reason)
    assert checkout.peers.shipping.fenced == {error.metadata["order_id"]}
    assert list(checkout.peers.payment.ledger.values()) == ["voided", "fenced"]
    again = await checkout.refused("key")
    assert (again.message, again.reason) == (error.message, error.reason)
    assert await checkout.states() == ["VOIDED"]


async def test_a_charge_that_cannot_be_voided_needs_a_refund(
    peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    peers.shipping.faults["ShipOrder"] = Fault(CLOSED)
    async with start(left_out=["ledger"]) as checkout:
        error = await checkout.refused("key")
        assert (type(error), error.reason) == (FailedPrecondition, "ORDER_NEEDS_REFUND")
        (order,) = await checkout.listed(stuck=True)
    assert (order.state, order.reason) == (orders_pb2.ORDER_STATE_NEEDS_REFUND, "DEPOT_CLOSED")


async def test_the_charge_of_a_fenced_parcel_is_voided(checkout: Checkout) -> None:
    async with checkout.peers.shipping.holding("ShipOrder", checkout.refused("key")) as call:
        (order,) = await checkout.listed()
        checkout.peers.shipping.fenced.add(order.order_id)
    assert (await call).reason == "CHARGE_VOIDED"
    assert list(checkout.peers.payment.ledger.values()) == ["voided", "fenced"]


async def test_a_cart_whose_order_was_voided_is_ordered_by_another_request(checkout: Checkout) -> None:
    checkout.peers.shipping.faults["ShipOrder"] = Fault(CLOSED, times=1)
    await checkout.refused()
    order = (await checkout.place(email="ann@elsewhere.example")).response.order
    assert list(checkout.peers.shipping.shipments) == [f"{order.order_id}:3"]
    assert checkout.peers.payment.captured == [f"{order.order_id}:3"]


@pytest.mark.parametrize(
    ("fault", "reasons", "charges"),
    [
        (Fault(CLOSED), ("DEPOT_CLOSED", "DEPOT_CLOSED"), ["voided", "fenced"]),
        (Fault(DOWN, times=1, after=True), ("ORDER_NEEDS_REVIEW", "MANIFEST_UNAVAILABLE"), ["charged"]),
    ],
    ids=["refused", "in doubt"],
)
async def test_without_a_manifest_a_refusal_voids_the_charge_and_a_shipment_in_doubt_is_not_repeated(
    start: Start, peers: FakePeers, fault: Fault, reasons: tuple[str, str], charges: list[str]
) -> None:
    """As with a foreign shipping, which may ignore keys."""
    peers.shipping.faults["ShipOrder"] = replace(fault)
    async with start(shipping_internal_addr=None) as checkout:
        error = await checkout.refused("key")
        (order,) = await checkout.listed()
    assert (type(error), error.reason, order.reason) == (FailedPrecondition, *reasons)
    assert order.stuck == (charges == ["charged"])
    assert (peers.shipping.calls["ShipOrder"], list(peers.payment.ledger.values())) == (1, charges)


# Keys


async def test_a_call_never_receives_the_order_of_a_different_request_for_its_cart(
    peers: FakePeers, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as one, start() as two:
        async with peers.payment.holding("Charge", one.refused()) as first:
            peers.payment.faults["Charge"].error, peers.payment.faults["Charge"].times = EXPIRED, 0
            monkeypatch.setattr(existing_orders, "_POLL_SECONDS", 3.0)
            joined = asyncio.create_task(two.refused())
            await until_called(peers.cart, "GetCart", times=2)
            await asyncio.sleep(0.5)  # the second call waits for the first one's order
        assert (await first).reason == "CARD_EXPIRED"
        await one.place(credit_card=OTHER_CARD)
        assert (await joined).reason in {"CART_ORDERED", "CARD_EXPIRED"}


async def test_a_repeated_key_returns_the_same_bytes_before_any_read(checkout: Checkout, peers: FakePeers) -> None:
    first = await checkout.place("key")
    for peer, method in READS:
        getattr(peers, peer).faults[method] = Fault(DOWN)
    again = await checkout.place("key")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.response.SerializeToString() == again.response.SerializeToString()
    assert len(peers.payment.captured) == 1


async def test_a_key_reused_for_a_different_request_is_refused(checkout: Checkout) -> None:
    await checkout.place("key")
    error = await checkout.refused("key", email="bob@mail.example")
    assert (type(error), error.reason) == (InvalidArgument, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("key", ["key", None])
async def test_concurrent_calls_join_one_order(checkout: Checkout, key: str | None) -> None:
    gate = checkout.peers.payment.hold("Charge")
    calls = [asyncio.create_task(checkout.place(key)) for _ in range(8)]
    await until_called(checkout.peers.payment, "Charge")
    gate.set()
    placed = await asyncio.gather(*calls)
    assert len({one.response.SerializeToString() for one in placed}) == 1
    assert [one.replayed for one in placed].count(False) == 1
    assert len(checkout.peers.payment.captured) == len(checkout.peers.shipping.shipments) == 1


@pytest.mark.parametrize("key", ["key", "another"])
async def test_a_call_that_waits_for_an_order_is_aborted_at_its_deadline(checkout: Checkout, key: str) -> None:
    async with checkout.peers.payment.holding("Charge", checkout.place("key")):
        error = await checkout.refused_at_deadline(key)
    assert (type(error), error.reason, error.retry_after_seconds) == (Aborted, "ORDER_IN_FLIGHT", 1.0)


@pytest.mark.parametrize(("peer", "method"), READS[1:])
async def test_without_a_key_an_ordered_cart_is_known_although_there_are_no_quotes(
    peers: FakePeers, start: Start, peer: str, method: str
) -> None:
    peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)
    async with start() as one, start() as without_caches:
        first = await one.place()
        getattr(peers, peer).faults[method] = Fault(DOWN)
        again = await without_caches.place()
        assert (again.replayed, again.response) == (True, first.response)
        error = await without_caches.refused(credit_card=OTHER_CARD)
        assert error.reason == "CART_ORDERED"


@pytest.mark.parametrize(("key", "overtakes"), [(None, False), ("key", False), ("key", True)])
async def test_of_two_equal_calls_at_once_one_waits_for_the_order_of_the_other(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, key: str | None, overtakes: bool
) -> None:
    insert, first, overtaken = Journal.insert, list[Entry](), asyncio.Event()

    async def insert_in_turn(journal: Journal, new: Entry) -> Entry | None:
        if overtakes and not first:
            first.append(new)
            await overtaken.wait()
        existing = await insert(journal, new)
        overtaken.set()
        return existing

    monkeypatch.setattr(Journal, "insert", insert_in_turn)
    monkeypatch.setattr(existing_orders, "_POLL_SECONDS", 60.0)
    gate = checkout.peers.catalog.hold("GetProduct")
    calls = [asyncio.create_task(checkout.place(key)) for _ in range(2)]
    await until_called(checkout.peers.cart, "GetCart", times=2)
    gate.set()
    assert sorted([(await call).replayed for call in calls]) == [False, True]


async def test_without_a_key_a_repeat_waits_for_the_same_replicas_order(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing_orders, "_POLL_SECONDS", 60.0)
    async with checkout.peers.payment.holding("Charge", checkout.place()) as first:
        again = [asyncio.create_task(checkout.place()) for _ in range(2)]
        await until_called(checkout.peers.cart, "GetCart", times=3)
        await asyncio.sleep(0.3)
    assert [(await call).replayed for call in (first, *again)] == [False, True, True]


async def test_without_a_key_a_retry_finds_the_order_that_the_cart_service_proves_to_have_emptied_the_cart(
    checkout: Checkout,
) -> None:
    first = await checkout.place()
    assert "ann" not in checkout.peers.cart.lines
    again = await checkout.place()
    assert (again.replayed, again.response) == (True, first.response)
    assert (await checkout.refused(email="bob@mail.example")).reason == "CART_EMPTY"
    checkout.peers.cart.ordered_etags.clear()  # the store of carts was lost, or the cart has expired
    assert (await checkout.refused()).reason == "CART_EMPTY"


@pytest.mark.parametrize(("key", "other"), [("first", "second"), ("first", None), (None, None)])
async def test_an_ordered_cart_is_refused_to_a_different_request(
    checkout: Checkout, key: str | None, other: str | None
) -> None:
    checkout.peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)
    await checkout.place(key)
    error = await checkout.refused(other, credit_card=OTHER_CARD)
    assert (type(error), error.reason) == (FailedPrecondition, "CART_ORDERED")


async def test_without_etags_each_call_without_a_key_is_a_new_order(checkout: Checkout) -> None:
    checkout.peers.cart.has_etags = False
    checkout.peers.ordered_cart.faults["RemoveOrdered"] = Fault(DOWN)
    await checkout.place()
    assert not (await checkout.place()).replayed


@pytest.mark.parametrize("without", [{"left_out": ["ledger"]}, {"payment_internal_addr": None}])
@pytest.mark.parametrize("then", [None, Fault(EXPIRED), Fault(AlreadyExists("charged", reason="CHARGE_EXISTS"))])
async def test_without_a_ledger_a_charge_in_doubt_is_neither_repeated_nor_believed_to_be_refused(
    peers: FakePeers, start: Start, without: dict[str, Any], then: Fault | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internal_service, "ABSENT_AFTER_SECONDS", 0.0)
    peers.payment.faults["Charge"] = Fault(DOWN, times=1, after=True, then=then)
    async with start(**without) as checkout:
        assert (await checkout.refused("key")).reason == "ORDER_IN_PROGRESS"
        await checkout.until_states("NEEDS_REVIEW")
        assert (await checkout.refused("key")).reason == "ORDER_NEEDS_REVIEW"
    assert (peers.payment.calls["Charge"], peers.shipping.shipments) == (1, {})


OLD, NEW = "o" * 32, "n" * 32


@pytest.mark.parametrize("key", ["key", None])
async def test_a_repeated_request_finds_its_order_after_the_hmac_key_changed(start: Start, key: str | None) -> None:
    async with start(hmac_key=OLD) as checkout:
        first = await checkout.place(key)
    async with start(hmac_key=f"{NEW},{OLD}") as checkout:
        again = await checkout.place(key)
    assert (again.replayed, again.response) == (True, first.response)


async def test_an_order_begun_with_the_new_key_is_found_by_a_replica_that_only_accepts_it(start: Start) -> None:
    async with start(hmac_key=f"{NEW},{OLD}") as updated, start(hmac_key=f"{OLD},{NEW}") as outdated:
        first = await updated.place("key")
        assert (await outdated.place("key")).response == first.response
