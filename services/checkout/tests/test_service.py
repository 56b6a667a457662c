"""What callers of PlaceOrder get, over real channels, with peers that fail when a test wants it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from chassis.errors import (
    Aborted,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    Unavailable,
)
from chassis.status import from_rpc_error
from checkout_service import outbox, placing
from shop import address_pb2, checkout_pb2, payment_pb2
from shop_testkit.fake_peers import FakePeers, Trouble

Request = Callable[..., checkout_pb2.PlaceOrderRequest]
Checkout = Any
Start = Callable[..., Any]

DOWN = Unavailable("down")
OTHER_CARD = payment_pb2.CreditCardInfo(
    credit_card_number="5555 5555 5555 4444", credit_card_expiration_year=2035, credit_card_expiration_month=1
)


async def refusal(call: Awaitable[Any]) -> DomainError:
    """The error that a call ends with, read as any of our clients reads it."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - it is another process's state, by its own RPC
            await asyncio.sleep(0.02)


async def until_states(checkout: Checkout, *states: str) -> None:
    async def reached() -> bool:
        return sorted(await checkout.states()) == sorted(states)

    await until(reached)


async def until_called(peer: Any, method: str, times: int = 1) -> None:
    async def called() -> bool:
        return bool(peer.calls[method] >= times)

    await until(called)


# The order itself


async def test_an_order_shows_its_lines_in_the_callers_currency(checkout: Checkout, request_of: Request) -> None:
    order = (await checkout.place(request_of())).response.order
    (line,) = order.items
    assert (line.item.product_id, line.item.quantity) == ("mug", 2)
    assert (line.cost.currency_code, line.cost.units, line.cost.nanos) == ("EUR", 35, 960_000_000)
    assert (order.shipping_cost.units, order.shipping_cost.nanos) == (9, 990_000_000)
    assert order.shipping_address == request_of().address
    assert order.shipping_tracking_id == f"track-{order.order_id}"


async def test_the_charge_is_the_sum_of_what_the_order_shows(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.cart.fill("ann", lamp=3, cup=1)
    order = (await checkout.place(request_of())).response.order
    shown = [order.shipping_cost, *(line.cost for line in order.items)]
    (charged,) = peers.payment.amounts.values()
    assert charged.units * 10**9 + charged.nanos == sum(cost.units * 10**9 + cost.nanos for cost in shown)


async def test_costs_are_rounded_to_the_currencys_minor_unit(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.cart.fill("ann", lamp=1)
    order = (await checkout.place(request_of(user_currency="JPY"))).response.order
    # 24.995 USD are 3,749.25 JPY, 4.995 USD are 749.25 JPY.
    assert [line.cost.units for line in order.items] == [2697, 3749]
    assert {line.cost.nanos for line in order.items} == {0}
    assert (order.shipping_cost.units, order.shipping_cost.nanos) == (749, 0)


async def test_the_same_currency_is_not_converted(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    await checkout.place(request_of(user_currency="USD"))
    assert peers.currency.calls["Convert"] == 0


async def test_equal_prices_are_converted_once(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    peers.cart.fill("ann", mug=2, cup=2)
    await checkout.place(request_of())
    assert peers.currency.calls["Convert"] == 2  # the lines' and the shipping's


async def test_a_second_order_asks_no_price_again(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    await checkout.place(request_of(), "first")
    peers.cart.fill("ann", mug=2)
    await checkout.place(request_of(), "second")
    assert (peers.catalog.calls["GetProduct"], peers.currency.calls["Convert"]) == (1, 2)


async def test_an_order_is_mailed_as_it_was_answered(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    placed = await checkout.place(request_of())
    (mail,) = peers.email.sent
    assert (mail.email, mail.order) == ("ann@mail.example", placed.response.order)


async def test_the_ordered_cart_is_emptied(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    await checkout.place(request_of())
    assert "ann" not in peers.cart.lines


async def test_an_item_added_during_checkout_is_not_lost(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge")
    call = asyncio.create_task(checkout.place(request_of()))
    await until_called(peers.payment, "Charge")
    peers.cart.fill("ann", lamp=1)
    gate.set()
    await call
    assert "lamp" in peers.cart.lines["ann"]


async def test_an_order_is_done_when_all_is_sent(checkout: Checkout, request_of: Request) -> None:
    await checkout.place(request_of())
    await until_states(checkout, "DONE")


# Refused before anything has an effect


BAD_FIELDS = {
    "user_id": {"user_id": ""},
    "user_currency": {"user_currency": "eur"},
    "address": {"address": None},
    "address.city": {"address": address_pb2.Address(city="x" * 257)},
    "address.zip_code": {"address": address_pb2.Address(zip_code=-1)},
    "email": {"email": "ann@mail.example,bob@mail.example"},
    "credit_card": {"credit_card": None},
    "credit_card.credit_card_number": {"credit_card": payment_pb2.CreditCardInfo()},
}


@pytest.mark.parametrize("field", BAD_FIELDS)
async def test_a_bad_field_is_named_and_nothing_is_charged(
    checkout: Checkout, peers: FakePeers, request_of: Request, field: str
) -> None:
    error = await refusal(checkout.place(request_of(**BAD_FIELDS[field]), "key"))
    assert isinstance(error, InvalidArgument)
    assert [broken.field for broken in error.violations] == [field]
    assert peers.payment.ledger == {}


async def test_an_unknown_currency_is_the_callers_mistake(checkout: Checkout, request_of: Request) -> None:
    error = await refusal(checkout.place(request_of(user_currency="XXX")))
    assert isinstance(error, InvalidArgument)
    assert [broken.field for broken in error.violations] == ["user_currency"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256])
async def test_a_bad_key_is_refused(checkout: Checkout, request_of: Request, key: str) -> None:
    error = await refusal(checkout.place(request_of(), key))
    assert isinstance(error, InvalidArgument)
    assert [broken.field for broken in error.violations] == ["idempotency-key"]


@pytest.mark.parametrize("key", ["key", None])
async def test_an_empty_cart_is_not_ordered(
    checkout: Checkout, peers: FakePeers, request_of: Request, key: str | None
) -> None:
    peers.cart.lines.clear()
    error = await refusal(checkout.place(request_of(), key))
    assert (type(error), error.reason) == (FailedPrecondition, "CART_EMPTY")


async def test_a_withdrawn_product_is_named(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    peers.cart.fill("ann", gone=1)
    error = await refusal(checkout.place(request_of()))
    assert (type(error), error.reason) == (FailedPrecondition, "PRODUCT_WITHDRAWN")
    assert error.metadata["product_id"] == "gone"


async def test_a_refused_quote_refuses_the_order(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    peers.shipping.trouble["GetQuote"] = Trouble(InvalidArgument.field("address.country", "is not served"))
    error = await refusal(checkout.place(request_of()))
    assert (type(error), error.reason) == (FailedPrecondition, "QUOTE_REFUSED")
    assert peers.payment.ledger == {}


async def test_a_total_beyond_64_bits_is_out_of_range(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.cart.fill("ann", rug=2)
    error = await refusal(checkout.place(request_of()))
    assert error.reason == "AMOUNT_OUT_OF_RANGE"
    assert peers.payment.ledger == {}


async def test_an_order_that_costs_nothing_is_not_placed(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.catalog.prices["mug"] = -3_000_000_000
    error = await refusal(checkout.place(request_of(user_currency="USD")))
    assert (type(error), error.reason) == (FailedPrecondition, "NOTHING_TO_PAY")


READS = [("cart", "GetCart"), ("catalog", "GetProduct"), ("shipping", "GetQuote"), ("currency", "Convert")]


@pytest.mark.parametrize(("peer", "method"), READS)
async def test_a_dependency_that_fails_means_unavailable_and_no_charge(
    checkout: Checkout, peers: FakePeers, request_of: Request, peer: str, method: str
) -> None:
    getattr(peers, peer).trouble[method] = Trouble(DOWN)
    error = await refusal(checkout.place(request_of()))
    assert (type(error), error.retry_after_seconds) == (Unavailable, 1.0)
    assert peers.payment.calls["Charge"] == 0
    assert await checkout.states() == []


async def test_a_dependency_that_breaks_is_not_our_own_internal_error(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.catalog.trouble["GetProduct"] = Trouble(Internal("broken"))
    assert type(await refusal(checkout.place(request_of()))) is Unavailable


@pytest.mark.parametrize("read", READS)
async def test_a_dependency_that_hangs_means_unavailable_within_its_time(
    checkout: Checkout, peers: FakePeers, request_of: Request, monkeypatch: pytest.MonkeyPatch, read: tuple[str, str]
) -> None:
    monkeypatch.setattr(placing, "READ_WITHIN_SECONDS", 1.0)
    peer, method = read
    gate = getattr(peers, peer).hold(method)
    error = await refusal(checkout.place(request_of(), within=60))
    gate.set()
    assert await checkout.states() == []
    assert (type(error), error.retry_after_seconds) == (Unavailable, 1.0)


async def test_an_order_is_not_begun_for_a_caller_who_is_about_to_leave(
    checkout: Checkout, peers: FakePeers, request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "ANSWER_BEFORE_DEADLINE_SECONDS", 3600)
    error = await refusal(checkout.place(request_of()))
    assert (type(error), error.reason) == (Unavailable, "QUOTES_TOO_SLOW")
    assert peers.payment.calls["Charge"] == 0


# The card is refused


async def test_a_refused_card_gets_payments_own_code_and_reason(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(FailedPrecondition("expired", reason="CARD_EXPIRED"))
    error = await refusal(checkout.place(request_of(), "key"))
    assert (type(error), error.reason) == (FailedPrecondition, "CARD_EXPIRED")
    assert await checkout.states() == ["DECLINED"]


async def test_a_refused_card_is_told_again_without_asking_payment(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(InvalidArgument.field("credit_card.credit_card_number", "is wrong"))
    first = await refusal(checkout.place(request_of(), "key"))
    again = await refusal(checkout.place(request_of(), "key"))
    assert isinstance(again, InvalidArgument)
    assert again.violations == (FieldViolation("credit_card.credit_card_number", "is wrong"),)
    assert (again.message, again.reason) == (first.message, first.reason)
    assert peers.payment.calls["Charge"] == 1


async def test_no_digits_of_the_card_come_back(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    quoting = FailedPrecondition("no: 4242 4242 4242 4242, cvv 123", reason="R4242424242424242")
    peers.payment.trouble["Charge"] = Trouble(quoting)
    error = await refusal(checkout.place(request_of(), "key"))
    assert error.message == "no: [number], cvv [number]"
    assert error.reason == "REFUSED"


async def test_another_card_orders_the_same_cart_after_a_refusal(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(FailedPrecondition("no", reason="CARD_EXPIRED"), times=1)
    await refusal(checkout.place(request_of()))
    placed = await checkout.place(request_of(credit_card=OTHER_CARD))
    assert not placed.replayed
    assert len(peers.payment.captured) == 1


# In doubt


async def test_a_charge_in_doubt_at_the_deadline_is_an_order_in_progress(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge", after=True)
    error = await refusal(checkout.place(request_of(), "key", within=3))
    (order,) = await checkout.listed()
    assert (type(error), error.reason) == (Unavailable, "ORDER_IN_PROGRESS")
    assert (error.metadata, error.retry_after_seconds) == ({"order_id": order.order_id}, 1.0)
    gate.set()
    await until_states(checkout, "DONE")
    assert (await checkout.place(request_of(), "key")).replayed
    assert len(peers.payment.captured) == 1


async def test_a_charged_order_waits_for_shipping_to_come_back(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.shipping.trouble["ShipOrder"] = Trouble(DOWN)
    error = await refusal(checkout.place(request_of(), "key", within=3))
    assert (type(error), error.reason) == (Unavailable, "ORDER_IN_PROGRESS")
    peers.shipping.trouble.clear()
    await until_states(checkout, "DONE")
    assert len(peers.shipping.shipments) == len(peers.payment.captured) == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_charge_that_fails_without_a_word_is_tried_again_under_its_key(
    checkout: Checkout, peers: FakePeers, request_of: Request, after: bool
) -> None:
    peers.payment.trouble["Charge"] = Trouble(DOWN, times=2, after=after)
    await checkout.place(request_of())
    assert len(peers.payment.captured) == 1


async def test_a_refusal_after_a_try_in_doubt_is_fenced_first(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(DOWN, times=1)
    call = asyncio.create_task(refusal(checkout.place(request_of(), "key")))
    await until_called(peers.payment, "Charge")
    peers.payment.trouble["Charge"] = Trouble(FailedPrecondition("no", reason="CARD_EXPIRED"))
    assert (await call).reason == "CARD_EXPIRED"
    assert list(peers.payment.ledger.values()) == ["fenced"]


async def test_a_caller_who_hangs_up_does_not_stop_the_order(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge")
    call = checkout.orders.PlaceOrder(request_of())
    await until_called(peers.payment, "Charge")
    call.cancel()
    gate.set()
    await until_states(checkout, "DONE")


async def test_a_charge_has_its_own_time_not_its_callers(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    await checkout.place(request_of(), within=3.5)
    assert 3.5 < peers.payment.seconds_left <= 5.5


# Sent later


@pytest.mark.parametrize(("peer", "method"), [("email", "SendOrderConfirmation"), ("cart", "EmptyCart")])
async def test_what_can_not_be_sent_does_not_fail_the_order(
    checkout: Checkout, peers: FakePeers, request_of: Request, peer: str, method: str
) -> None:
    getattr(peers, peer).trouble[method] = Trouble(DOWN)
    placed = await checkout.place(request_of())
    assert placed.response.order.shipping_tracking_id
    assert await checkout.states() == ["SHIPPED"]


async def test_what_hangs_does_not_hold_the_answer(
    checkout: Checkout, peers: FakePeers, request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "SEND_NOW_SECONDS", 1.0)
    gate = peers.email.hold("SendOrderConfirmation")
    await checkout.place(request_of())
    assert peers.email.sent == []
    gate.set()


async def test_an_email_that_is_refused_for_good_is_dropped(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.email.trouble["SendOrderConfirmation"] = Trouble(InvalidArgument.field("email", "no such host"))
    await checkout.place(request_of())
    await until_states(checkout, "DONE")


# Shipping refuses for good


async def test_an_order_that_can_not_be_shipped_is_voided(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.shipping.trouble["ShipOrder"] = Trouble(FailedPrecondition("closed", reason="DEPOT_CLOSED"))
    error = await refusal(checkout.place(request_of(), "key"))
    assert (type(error), error.reason) == (FailedPrecondition, "DEPOT_CLOSED")
    assert list(peers.payment.ledger.values()) == ["voided"]
    again = await refusal(checkout.place(request_of(), "key"))
    assert (again.message, again.reason) == (error.message, error.reason)
    assert await checkout.states() == ["VOIDED"]


async def test_a_charge_that_can_not_be_voided_needs_a_refund(
    peers: FakePeers, start: Start, request_of: Request
) -> None:
    peers.shipping.trouble["ShipOrder"] = Trouble(FailedPrecondition("closed", reason="DEPOT_CLOSED"))
    async with peers.serving(with_ledger=False) as address, start(address) as checkout:
        error = await refusal(checkout.place(request_of(), "key"))
        assert error.reason == "DEPOT_CLOSED"
        assert await checkout.states() == ["NEEDS_REFUND"]


# Keys


async def test_the_same_key_again_gets_the_same_bytes(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    first = await checkout.place(request_of(), "key")
    again = await checkout.place(request_of(), "key")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.response.SerializeToString() == again.response.SerializeToString()
    assert len(peers.payment.captured) == 1


async def test_a_known_key_is_answered_before_any_validation(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    placed = await checkout.place(request_of(), "key")
    for peer, method in READS:
        getattr(peers, peer).trouble[method] = Trouble(DOWN)
    assert (await checkout.place(request_of(), "key")).response == placed.response


async def test_a_key_with_another_request_is_refused(checkout: Checkout, request_of: Request) -> None:
    await checkout.place(request_of(), "key")
    error = await refusal(checkout.place(request_of(email="bob@mail.example"), "key"))
    assert (type(error), error.reason) == (InvalidArgument, "IDEMPOTENCY_KEY_REUSED")


async def test_a_key_belongs_to_its_user(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    peers.cart.fill("bob", lamp=1)
    await checkout.place(request_of(), "key")
    assert not (await checkout.place(request_of(user_id="bob"), "key")).replayed


@pytest.mark.parametrize("key", ["key", None])
async def test_calls_at_once_join_one_order(
    checkout: Checkout, peers: FakePeers, request_of: Request, key: str | None
) -> None:
    gate = peers.payment.hold("Charge")
    calls = [asyncio.create_task(checkout.place(request_of(), key)) for _ in range(8)]
    await until_called(peers.payment, "Charge")
    gate.set()
    placed = await asyncio.gather(*calls)
    assert len({one.response.SerializeToString() for one in placed}) == 1
    assert [one.replayed for one in placed].count(False) == 1
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1


async def test_a_joined_call_past_its_deadline_is_aborted(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    gate = peers.payment.hold("Charge")
    first = asyncio.create_task(checkout.place(request_of(), "key"))
    await until_called(peers.payment, "Charge")
    error = await refusal(checkout.place(request_of(), "key", within=2))
    assert (type(error), error.reason, error.retry_after_seconds) == (Aborted, "ORDER_IN_FLIGHT", 1.0)
    gate.set()
    await first


async def test_replicas_join_one_order(peers: FakePeers, start: Start, request_of: Request) -> None:
    gate = peers.payment.hold("Charge")
    async with peers.serving() as address, start(address) as one, start(address) as two:
        first = asyncio.create_task(one.place(request_of(), "key"))
        await until_called(peers.payment, "Charge")
        second = asyncio.create_task(two.place(request_of(), "key"))
        gate.set()
        assert (await first).response == (await second).response
        assert len(peers.payment.captured) == 1


async def test_without_a_key_the_cart_is_the_key(checkout: Checkout, peers: FakePeers, request_of: Request) -> None:
    peers.cart.trouble["EmptyCart"] = Trouble(DOWN)
    first = await checkout.place(request_of())
    again = await checkout.place(request_of())
    assert (again.replayed, again.response) == (True, first.response)


async def test_without_a_key_a_repetition_finds_the_order_whose_cart_is_empty_now(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    first = await checkout.place(request_of())
    assert "ann" not in peers.cart.lines
    again = await checkout.place(request_of())
    assert (again.replayed, again.response) == (True, first.response)


async def test_without_a_key_a_cart_filled_anew_is_a_new_order(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    await checkout.place(request_of())
    peers.cart.fill("ann", mug=2)
    assert not (await checkout.place(request_of())).replayed
    assert len(peers.payment.captured) == 2


async def test_an_ordered_cart_is_not_ordered_by_another_request(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.cart.trouble["EmptyCart"] = Trouble(DOWN)
    await checkout.place(request_of())
    error = await refusal(checkout.place(request_of(credit_card=OTHER_CARD)))
    assert (type(error), error.reason) == (FailedPrecondition, "CART_ORDERED")


async def test_a_foreign_cart_without_etags_is_ordered_each_time(
    checkout: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.cart.has_etags = False
    peers.cart.trouble["EmptyCart"] = Trouble(DOWN)
    await checkout.place(request_of())
    assert not (await checkout.place(request_of())).replayed


@pytest.fixture
async def foreign(peers: FakePeers, start: Start) -> AsyncIterator[Checkout]:
    """A checkout whose payment has no ledger."""
    async with peers.serving(with_ledger=False) as address, start(address) as running:
        yield running


async def test_a_foreign_payment_is_not_asked_twice_on_our_own_account(
    foreign: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(DOWN, times=1)
    error = await refusal(foreign.place(request_of(), "key"))
    assert error.reason == "ORDER_IN_PROGRESS"
    assert peers.payment.calls["Charge"] == 1


async def test_an_order_in_doubt_goes_on_when_its_caller_returns(
    foreign: Checkout, peers: FakePeers, request_of: Request
) -> None:
    peers.payment.trouble["Charge"] = Trouble(DOWN, times=1, after=True)
    await refusal(foreign.place(request_of(), "key"))

    async def placed() -> bool:
        try:
            return bool((await foreign.place(request_of(), "key", within=3)).response.order.order_id)
        except grpc.aio.AioRpcError:
            return False

    await until(placed)
    assert len(peers.payment.captured) == len(peers.shipping.shipments) == 1
