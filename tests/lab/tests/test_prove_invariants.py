"""Each invariant finds its violations, and finds none in correct evidence."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from chassis.values.money import Money
from shop.cart_pb2 import CartItem
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderItem, OrderResult
from shop_lab.world.customer_plan import Customer, Intent, Line, OrderKind
from shop_lab.world.evidence import (
    NEEDS_REVIEW,
    CartEvidence,
    ClientOutcome,
    Confirmation,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
    Shipment,
)
from shop_lab.world.evidence_collector import with_justified_flags
from shop_lab.world.fake_peers import FakePeer
from shop_lab.world.fake_peers.refusing import RefusingPeers
from shop_lab.world.invariants import check_invariants, summary_counts

TOTAL = Money.of("EUR", 12, 500_000_000)
ORDER = OrderResult(
    order_id="order-id",
    shipping_tracking_id="tracking-id",
    shipping_cost=WireMoney(currency_code="EUR", units=2, nanos=500_000_000),
    items=[
        OrderItem(item=CartItem(product_id="mug", quantity=2), cost=WireMoney(currency_code="EUR", units=10)),
    ],
)
OTHER_ORDER = OrderResult(order_id="other-id")
INTENT = Intent(
    number=3,
    user_id="customer-3",
    email="order-3@prove.example.com",
    street="3 Proving Ground",
    card_number="4000000000000002",
    card_year=2031,
    currency="EUR",
    kind=OrderKind.VALID,
    lines=(Line("mug", 2),),
    key="key",
    late_line=None,
    max_tries=None,
    seed=1,
)
SHIPMENT = Shipment("tracking-id", {"mug": 2})
CONFIRMATION = Confirmation("order-id", INTENT.email, "Order order-id tracking-id mug 3 Proving Ground")
PLACED = OrderEvidence(
    intent=INTENT,
    response=OrderResponse(ClientOutcome.PLACED, ORDER, tries=1),
    charges=(TOTAL,),
    shipments=(SHIPMENT,),
    confirmations=(CONFIRMATION,),
    journal_record=JournalRecord("order-id", "DONE", TOTAL),
    repeated=OrderResponse(ClientOutcome.PLACED, ORDER),
)
REFUSED = OrderResponse(ClientOutcome.REFUSED, reason="CART_ORDERED")
UNKNOWN = OrderResponse(ClientOutcome.UNKNOWN)
NOT_PLACED = replace(PLACED, charges=(), shipments=(), confirmations=(), journal_record=None, repeated=None)


def cart(contents: Mapping[str, int], added_late: Mapping[str, int] | None = None) -> CartEvidence:
    return CartEvidence(Customer(INTENT.user_id, (INTENT,)), {"mug": 2}, added_late or {}, contents)


def violated(
    *orders: OrderEvidence, carts: tuple[CartEvidence, ...] = (), quiet_seconds: float | None = 1.0
) -> set[str]:
    evidence = Evidence(orders, carts, quiet_seconds)
    return {invariant.name for invariant in check_invariants(evidence) if not invariant.holds}


def test_a_placed_order_violates_nothing() -> None:
    assert violated(PLACED, carts=(cart({}),)) == set()


def test_a_refused_order_without_ledger_entries_violates_nothing() -> None:
    refused = replace(NOT_PLACED, response=OrderResponse(ClientOutcome.REFUSED, reason="CARD_EXPIRED"))
    assert violated(refused, carts=(cart({"mug": 2}),)) == set()


def test_a_placed_order_without_a_definite_response_violates_nothing() -> None:
    intent = replace(INTENT, max_tries=1)
    placed = replace(PLACED, intent=intent, response=OrderResponse(ClientOutcome.UNKNOWN), repeated=None)
    assert violated(placed) == set()


def test_two_charges_violate_i1() -> None:
    assert "I1" in violated(replace(PLACED, charges=(TOTAL, TOTAL)))


def test_charges_of_two_orders_of_the_same_cart_contents_violate_i1() -> None:
    one = replace(PLACED, intent=replace(INTENT, number=1, rival=2))
    other = replace(PLACED, intent=replace(INTENT, number=2, rival=1))
    assert violated(one, other) == {"I1"}
    assert violated(one, replace(NOT_PLACED, intent=other.intent, response=REFUSED)) == set()


def test_a_history_that_no_sequence_of_calls_explains_violates_i10() -> None:
    evidence = Evidence((PLACED,), contradictions=("the cart of ada: ...",))
    assert [invariant.name for invariant in check_invariants(evidence) if not invariant.holds] == ["I10"]


def test_a_charge_that_belongs_to_no_order_violates_i1() -> None:
    evidence = Evidence((PLACED,), unmatched_entries=("charge k belongs to no order",))
    assert [invariant.name for invariant in check_invariants(evidence) if not invariant.holds] == ["I1"]


def test_two_shipments_violate_i2() -> None:
    assert "I2" in violated(replace(PLACED, shipments=(SHIPMENT, Shipment("another", {}))))


def test_a_charge_without_a_shipment_violates_i2() -> None:
    assert "I2" in violated(replace(PLACED, shipments=()))


def test_an_order_unfinished_long_after_the_last_fault_violates_i2() -> None:
    assert violated(PLACED, quiet_seconds=None) == {"I2"}


def test_an_emptied_cart_without_a_shipment_violates_i2() -> None:
    assert violated(replace(NOT_PLACED, response=OrderResponse(ClientOutcome.CART_EMPTIED))) == {"I2"}


def test_a_shipment_without_a_charge_violates_i3() -> None:
    assert "I3" in violated(replace(PLACED, charges=()))


def test_a_shipped_order_without_a_confirmation_violates_i4() -> None:
    assert violated(replace(PLACED, confirmations=())) == {"I4"}


def test_confirmations_of_two_order_ids_violate_i4() -> None:
    assert "I4" in violated(replace(PLACED, confirmations=(CONFIRMATION, replace(CONFIRMATION, order_id="another"))))


def test_the_same_confirmation_twice_violates_i4() -> None:
    assert violated(replace(PLACED, confirmations=(CONFIRMATION, CONFIRMATION))) == {"I4"}


def test_a_confirmation_without_a_shipment_violates_i4() -> None:
    refused = replace(NOT_PLACED, response=OrderResponse(ClientOutcome.REFUSED), confirmations=(CONFIRMATION,))
    assert violated(refused) == {"I4"}


def test_a_confirmation_may_show_a_product_by_its_name() -> None:
    named = replace(CONFIRMATION, text=CONFIRMATION.text.replace("mug", "Stoneware cup"))
    evidence = Evidence((replace(PLACED, confirmations=(named,)),), product_names={"mug": "Stoneware cup"})
    assert all(invariant.holds for invariant in check_invariants(evidence))


@pytest.mark.parametrize("text", ["order-id", "tracking-id", "mug", "3 Proving Ground"])
def test_a_confirmation_without_a_text_of_the_order_violates_i4(text: str) -> None:
    confirmation = replace(CONFIRMATION, text=CONFIRMATION.text.replace(text, ""))
    assert violated(replace(PLACED, confirmations=(confirmation,))) == {"I4"}


@pytest.mark.parametrize("state", ["CHARGING", "DECLINED", "ABANDONED", "VOIDED"])
def test_an_ok_response_for_an_unsettled_or_failed_order_violates_i5(state: str) -> None:
    assert violated(replace(PLACED, journal_record=JournalRecord("order-id", state, TOTAL))) == {"I5"}


@pytest.mark.parametrize(
    "repeated",
    [
        OrderResponse(ClientOutcome.PLACED, OTHER_ORDER),
        OrderResponse(ClientOutcome.REFUSED),
        OrderResponse(ClientOutcome.UNKNOWN),
    ],
)
def test_a_different_response_to_the_same_key_violates_i5(repeated: OrderResponse) -> None:
    assert violated(replace(PLACED, repeated=repeated)) == {"I5"}


def test_a_tracking_id_that_no_shipment_has_violates_i5() -> None:
    assert "I5" in violated(replace(PLACED, shipments=(Shipment("another", {"mug": 2}),)))


def test_a_contradiction_between_responses_violates_i5() -> None:
    response = replace(PLACED.response, contradictions=("two different responses",))
    assert violated(replace(PLACED, response=response)) == {"I5"}


def test_a_charge_after_a_refusal_violates_i6() -> None:
    refused = replace(PLACED, response=OrderResponse(ClientOutcome.REFUSED, reason="CARD_EXPIRED"), repeated=None)
    assert violated(refused) == {"I6"}


@pytest.mark.parametrize("contents", [{"mug": 2}, {"mug": 1}, {"hat": 1}])
def test_wrong_cart_contents_after_an_order_violate_i7(contents: dict[str, int]) -> None:
    assert violated(PLACED, carts=(cart(contents),)) == {"I7"}


def test_an_emptied_cart_after_a_refusal_violates_i7() -> None:
    refused = replace(NOT_PLACED, response=OrderResponse(ClientOutcome.REFUSED))
    assert violated(refused, carts=(cart({}),)) == {"I7"}


def test_a_late_addition_that_is_left_alone_violates_nothing() -> None:
    assert violated(PLACED, carts=(cart({"hat": 1}, added_late={"hat": 1}),)) == set()


def test_ordered_items_left_with_a_late_addition_violate_i7() -> None:
    assert violated(PLACED, carts=(cart({"hat": 1, "mug": 2}, added_late={"hat": 1}),)) == {"I7"}


def test_a_lost_late_addition_violates_i7() -> None:
    assert violated(PLACED, carts=(cart({}, added_late={"hat": 1}),)) == {"I7"}


def test_a_charge_of_a_different_amount_violates_i8() -> None:
    assert violated(replace(PLACED, charges=(Money("EUR", TOTAL.total_nanos + 1),))) == {"I8"}


def test_two_wrong_charges_with_the_right_sum_violate_i8() -> None:
    more = replace(PLACED, charges=(Money("EUR", TOTAL.total_nanos + 1),))
    less = replace(PLACED, charges=(Money("EUR", TOTAL.total_nanos - 1),))
    assert violated(more, less) == {"I8"}


def violated_after_losses(order: OrderEvidence) -> set[str]:
    evidence = Evidence((order,), journal_loses_commits=True)
    return {invariant.name for invariant in check_invariants(evidence) if not invariant.holds}


LOST = replace(PLACED, journal_record=None, repeated=None)


@pytest.mark.parametrize(
    "lost",
    [
        LOST,
        replace(LOST, confirmations=()),
        replace(LOST, response=replace(PLACED.response, contradictions=("a repetition returned CART_EMPTY",))),
        replace(LOST, intent=replace(INTENT, max_tries=1), shipments=(), confirmations=(), response=UNKNOWN),
    ],
)
def test_an_order_that_the_journal_lost_may_be_incomplete(lost: OrderEvidence) -> None:
    assert violated_after_losses(lost) == set()
    assert violated(lost)


@pytest.mark.parametrize(
    ("lost", "invariant"),
    [
        (replace(LOST, charges=(TOTAL, TOTAL)), "I1"),
        (replace(LOST, shipments=(SHIPMENT, Shipment("another", {}))), "I2"),
        (replace(LOST, charges=()), "I3"),
    ],
)
def test_an_order_that_the_journal_lost_has_at_most_one_effect_of_each_kind(
    lost: OrderEvidence, invariant: str
) -> None:
    assert invariant in violated_after_losses(lost)


def test_an_order_recorded_again_with_other_contents_is_compared_with_its_response_only() -> None:
    record = JournalRecord("order-id", NEEDS_REVIEW, Money.of("EUR", 20))
    flagged = replace(PLACED, journal_record=record, intent=replace(INTENT, max_tries=1), repeated=None)
    unanswered = replace(flagged, response=UNKNOWN)
    assert violated_after_losses(unanswered) == violated_after_losses(flagged) == set()
    assert violated_after_losses(replace(flagged, charges=(Money.of("EUR", 20),))) == {"I8"}
    assert "I8" in violated(unanswered)


def test_an_order_recorded_again_after_its_response_had_been_lost() -> None:
    contradiction = replace(PLACED.response, contradictions=("a repetition returned CART_EMPTY",), received_at=10.0)
    again = replace(PLACED, response=contradiction, journal_record=JournalRecord("order-id", "DONE", TOTAL, 11.0))
    assert violated_after_losses(again) == set()
    assert violated(again) == {"I5"}
    earlier = replace(again, journal_record=JournalRecord("order-id", "DONE", TOTAL, 9.0))
    assert violated_after_losses(earlier) == {"I5"}


def of_one_cart(*orders: OrderEvidence, key: str | None) -> tuple[OrderEvidence, ...]:
    return tuple(
        replace(order, intent=replace(INTENT, number=number, rival=3 - number, key=key))
        for number, order in enumerate(orders, start=1)
    )


@pytest.mark.parametrize(("key", "expected"), [(None, {"I1"}), ("key", set())])
def test_two_keys_may_order_one_cart_only_after_a_loss(key: str | None, expected: set[str]) -> None:
    evidence = Evidence(of_one_cart(LOST, PLACED, key=key), journal_loses_commits=True)
    assert {invariant.name for invariant in check_invariants(evidence) if not invariant.holds} == expected
    assert violated(*of_one_cart(PLACED, PLACED, key=key)) == {"I1"}


def test_two_orders_of_one_cart_in_the_journal_are_not_due_to_a_loss() -> None:
    evidence = Evidence(of_one_cart(PLACED, PLACED, key="key"), journal_loses_commits=True)
    assert {invariant.name for invariant in check_invariants(evidence) if not invariant.holds} == {"I1"}


def test_a_cart_that_was_ordered_twice_after_a_loss_is_counted() -> None:
    evidence = Evidence(of_one_cart(LOST, PLACED, key="key"), journal_loses_commits=True)
    assert summary_counts(evidence)["carts_ordered_twice"] == 1


def test_an_unexpected_error_of_a_service_violates_i11() -> None:
    evidence = Evidence((PLACED,), unexpected_errors=("payment: Traceback ...",))
    assert [invariant.name for invariant in check_invariants(evidence) if not invariant.holds] == ["I11"]


def test_an_order_in_the_journal_is_complete_even_if_others_were_lost() -> None:
    assert violated_after_losses(replace(PLACED, shipments=())) >= {"I2"}


def flagged(state: str, *, justified: str) -> OrderEvidence:
    """A refused order that was charged, and is left to operators."""
    return replace(
        NOT_PLACED,
        charges=(TOTAL,),
        journal_record=JournalRecord("order-id", state, TOTAL),
        response=OrderResponse(ClientOutcome.REFUSED, reason="ORDER_NEEDS_REVIEW"),
        justified_flags=frozenset({justified}),
    )


REFUND = flagged("NEEDS_REFUND", justified="NEEDS_REFUND")
REVIEW = flagged("NEEDS_REVIEW", justified="NEEDS_REVIEW")


@pytest.mark.parametrize("order", [REFUND, REVIEW, replace(REVIEW, shipments=(SHIPMENT,))])
def test_an_order_that_a_peer_refused_to_settle_may_be_left_to_operators(order: OrderEvidence) -> None:
    assert violated(order, carts=(cart({"mug": 2}),)) == set()


@pytest.mark.parametrize("state", ["NEEDS_REFUND", "NEEDS_REVIEW"])
def test_an_order_that_no_peer_refused_to_settle_must_not_be_left_to_operators(state: str) -> None:
    assert violated(flagged(state, justified="DONE")) == {"I2"}


def test_the_records_of_the_peers_justify_that_orders_are_left_to_operators() -> None:
    peers = RefusingPeers(refusing={"payment-internal": FakePeer()})
    (unjustified,) = with_justified_flags(Evidence((PLACED,)), peers).orders
    assert unjustified.justified_flags == set()
    peers.refusing["payment-internal"].refused.add("order-id")
    peers.doubtful_shipping.refused.add(INTENT.street)
    (justified,) = with_justified_flags(Evidence((PLACED,)), peers).orders
    assert justified.justified_flags == {"NEEDS_REFUND", "NEEDS_REVIEW"}


def test_a_refund_does_not_justify_a_review() -> None:
    assert violated(flagged("NEEDS_REVIEW", justified="NEEDS_REFUND")) == {"I2"}


@pytest.mark.parametrize("order", [REFUND, REVIEW])
def test_an_order_that_is_left_to_operators_is_charged(order: OrderEvidence) -> None:
    assert violated(replace(order, charges=())) == {"I2"}


def test_an_order_to_be_refunded_must_not_be_shipped() -> None:
    assert violated(replace(REFUND, shipments=(SHIPMENT,))) == {"I2"}


def test_an_order_that_is_left_to_operators_is_not_confirmed() -> None:
    assert violated(replace(REVIEW, shipments=(SHIPMENT,), confirmations=(CONFIRMATION,))) == {"I4"}


def test_orders_that_are_left_to_operators_are_counted_apart() -> None:
    counts = summary_counts(Evidence((PLACED, REFUND, replace(REVIEW, shipments=(SHIPMENT,)))))
    assert (counts["placed"], counts["left_to_operators"]) == (1, 2)
    assert (counts["charged_not_shipped"], counts["lost_confirmations"]) == (0, 0)


def test_too_many_orders_without_a_definite_response_violate_i9() -> None:
    unanswered = replace(NOT_PLACED, response=OrderResponse(ClientOutcome.UNKNOWN))
    assert violated(*[PLACED] * 18, unanswered, unanswered) == {"I9"}


def test_orders_that_customers_skipped_do_not_count_for_i9() -> None:
    skipped = replace(NOT_PLACED, response=OrderResponse(ClientOutcome.SKIPPED))
    assert violated(*[PLACED] * 18, skipped, skipped) == set()


def test_customers_who_give_up_do_not_count_for_i9() -> None:
    given_up = replace(NOT_PLACED, intent=replace(INTENT, max_tries=1), response=OrderResponse(ClientOutcome.UNKNOWN))
    assert violated(*[PLACED] * 18, given_up, given_up) == set()
