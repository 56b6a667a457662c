"""Each invariant finds its violations, and finds none in correct evidence."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from chassis.values.money import Money
from shop.cart_pb2 import CartItem
from shop.money_pb2 import Money as WireMoney
from shop.order_pb2 import OrderItem, OrderResult
from shop_lab.world.customer_plan import Customer, Line, valid_intent
from shop_lab.world.evidence import (
    CartEvidence,
    ClientOutcome,
    Confirmation,
    Evidence,
    JournalRecord,
    OrderEvidence,
    OrderResponse,
    Shipment,
)
from shop_lab.world.invariants import check_invariants

TOTAL, OTHER_TOTAL = Money.of("EUR", 12, 500_000_000), Money.of("EUR", 7)
ORDER = OrderResult(
    order_id="order-id",
    shipping_tracking_id="tracking-id",
    shipping_cost=WireMoney(currency_code="EUR", units=2, nanos=500_000_000),
    items=[
        OrderItem(item=CartItem(product_id="mug", quantity=2), cost=WireMoney(currency_code="EUR", units=10)),
    ],
)
OTHER_ORDER = OrderResult(order_id="other-id")
INTENT = valid_intent(3, "customer-3", [Line("mug", 2)], "key")
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
EMPTIED = OrderResponse(ClientOutcome.CART_EMPTIED)
NOT_PLACED = replace(PLACED, charges=(), shipments=(), confirmations=(), journal_record=None, repeated=None)


def cart(contents: Mapping[str, int], added_late: Mapping[str, int] | None = None) -> CartEvidence:
    return CartEvidence(Customer(INTENT.user_id, ((INTENT,),)), {"mug": 2, **(added_late or {})}, contents)


def names_of_violated(evidence: Evidence) -> set[str]:
    return {invariant.name for invariant in check_invariants(evidence) if not invariant.holds}


def violated(*orders: OrderEvidence, carts: tuple[CartEvidence, ...] = ()) -> set[str]:
    return names_of_violated(Evidence(orders, carts, 1.0))


GIVEN_UP = replace(INTENT, max_tries=1)
LATE_HAT = {"hat": 1}
MORE, LESS = (replace(PLACED, charges=(Money("EUR", TOTAL.total_nanos + nanos),)) for nanos in (1, -1))
CARD_EXPIRED = OrderResponse(ClientOutcome.REFUSED, reason="CARD_EXPIRED")
ANOTHER_SHIPMENT = Shipment("another", {"mug": 2})
RIVALS = [replace(PLACED, intent=replace(INTENT, number=number, contested=True)) for number in (1, 2)]
BOUGHT_BY_RIVAL = replace(NOT_PLACED, intent=RIVALS[1].intent, response=REFUSED)

AGAIN = replace(
    PLACED,
    intent=replace(INTENT, key=None, contested=True),
    charges=(TOTAL, OTHER_TOTAL),
    shipments=(SHIPMENT, Shipment("tracking-2", {"mug": 1})),
    confirmations=(CONFIRMATION, replace(CONFIRMATION, order_id="order-2", text="order-2 tracking-2 3 Proving Ground")),
    further_records=(JournalRecord("order-2", "DONE", OTHER_TOTAL, "tracking-2"),),
    repeated=None,
)


def of(*orders: OrderEvidence, contents: Mapping[str, int] | None = None, **others: Any) -> Evidence:
    """Return evidence of orders, by default of one that was placed; with a cart if its contents are given."""
    added_late = others.pop("added_late", None)
    carts = () if contents is None else (cart(contents, added_late),)
    return Evidence(orders or (PLACED,), carts, **{"quiet_seconds": 1.0, **others})


def confirmed(text: str, instead: str = "") -> OrderEvidence:
    """Return a placed order whose confirmation has another text instead of one."""
    return replace(PLACED, confirmations=(replace(CONFIRMATION, text=CONFIRMATION.text.replace(text, instead)),))


@pytest.mark.parametrize(
    "evidence",
    [
        pytest.param(of(contents={}), id="a placed order"),
        pytest.param(of(replace(NOT_PLACED, response=CARD_EXPIRED), contents={"mug": 2}), id="a refused order"),
        pytest.param(of(replace(PLACED, intent=GIVEN_UP, response=UNKNOWN, repeated=None)), id="no definite response"),
        pytest.param(of(RIVALS[0], BOUGHT_BY_RIVAL, contents={}), id="one of two"),
        pytest.param(of(AGAIN, contents={}, added_late={"mug": 3}), id="a retry that ordered what was added meanwhile"),
        pytest.param(of(contents=LATE_HAT, added_late=LATE_HAT), id="a late addition that is left alone"),
        pytest.param(of(confirmed("mug", "Cup"), product_names={"mug": "Cup"}), id="a product shown by its name"),
        pytest.param(
            of(*[PLACED] * 18, *[replace(NOT_PLACED, intent=GIVEN_UP, response=UNKNOWN)] * 2),
            id="customers who gave up",
        ),
    ],
)
def test_correct_evidence_violates_nothing(evidence: Evidence) -> None:
    assert names_of_violated(evidence) == set()


@pytest.mark.parametrize(
    ("invariants", "evidence"),
    [
        pytest.param("I1 I2 I8", of(replace(PLACED, charges=(TOTAL, TOTAL))), id="two charges"),
        pytest.param("I7", of(*RIVALS, contents={}), id="two orders of the same cart contents"),
        pytest.param("I7", of(AGAIN, contents={}), id="a retry that ordered the same again"),
        pytest.param("I5", of(BOUGHT_BY_RIVAL), id="refused as if another order had bought it"),
        pytest.param("I1", of(unmatched_entries=("charge k belongs to no order",)), id="a charge of no order"),
        pytest.param("I2 I4", of(replace(PLACED, shipments=(SHIPMENT, Shipment("another", {})))), id="two shipments"),
        pytest.param("I2 I4 I5", of(replace(PLACED, shipments=())), id="a charge without a shipment"),
        pytest.param("I2", of(quiet_seconds=None), id="an order unfinished long after the last fault"),
        pytest.param("I2", of(replace(NOT_PLACED, response=EMPTIED)), id="an emptied cart without a shipment"),
        pytest.param("I2 I3", of(replace(PLACED, charges=())), id="a shipment without a charge"),
        pytest.param("I4", of(replace(PLACED, confirmations=())), id="no confirmation"),
        pytest.param(
            "I4",
            of(replace(PLACED, confirmations=(CONFIRMATION, replace(CONFIRMATION, order_id="another")))),
            id="confirmations of two order ids",
        ),
        pytest.param("I4", of(replace(PLACED, confirmations=(CONFIRMATION,) * 2)), id="a confirmation twice"),
        pytest.param(
            "I4",
            of(replace(NOT_PLACED, response=CARD_EXPIRED, confirmations=(CONFIRMATION,))),
            id="a confirmation without a shipment",
        ),
        pytest.param("I4 I5", of(replace(PLACED, shipments=(ANOTHER_SHIPMENT,))), id="another tracking id"),
        pytest.param(
            "I5",
            of(replace(PLACED, response=replace(PLACED.response, contradictions=("two different responses",)))),
            id="a contradiction between responses",
        ),
        pytest.param("I6", of(replace(PLACED, response=CARD_EXPIRED, repeated=None)), id="a charge after a refusal"),
        pytest.param("I7", of(contents={"mug": 2}), id="a full cart after an order"),
        pytest.param("I7", of(contents={"mug": 1}), id="a cart that lost a part"),
        pytest.param("I7", of(contents={"hat": 1}), id="a cart with something else"),
        pytest.param("I7", of(replace(NOT_PLACED, response=CARD_EXPIRED), contents={}), id="emptied after a refusal"),
        pytest.param("I7", of(contents={"hat": 1, "mug": 2}, added_late=LATE_HAT), id="ordered items that were left"),
        pytest.param("I7", of(contents={}, added_late=LATE_HAT), id="a lost late addition"),
        pytest.param("I8", of(MORE), id="a charge of a different amount"),
        pytest.param("I8", of(MORE, LESS), id="two wrong charges with the right sum"),
        pytest.param("I9", of(*[PLACED] * 18, *[replace(NOT_PLACED, response=UNKNOWN)] * 2), id="too few responses"),
        pytest.param("I10", of(contradictions=("the cart of ada: ...",)), id="a history that nothing explains"),
        *(
            pytest.param("I4", of(confirmed(text)), id=f"a confirmation without {text}")
            for text in ("order-id", "tracking-id", "mug", "3 Proving Ground")
        ),
        *(
            pytest.param("I5", of(replace(PLACED, journal_record=JournalRecord("order-id", state, TOTAL))), id=state)
            for state in ("CHARGING", "DECLINED", "ABANDONED", "VOIDED")
        ),
        *(
            pytest.param("I5", of(replace(PLACED, repeated=repeated)), id=f"a repetition is {repeated.outcome.name}")
            for repeated in (OrderResponse(ClientOutcome.PLACED, OTHER_ORDER), CARD_EXPIRED, UNKNOWN)
        ),
        pytest.param("I11", of(unexpected_errors=("payment: Traceback ...",)), id="an unexpected error of a service"),
    ],
)
def test_wrong_evidence_violates_its_invariants(invariants: str, evidence: Evidence) -> None:
    assert " ".join(sorted(names_of_violated(evidence))) == invariants


def violated_after_losses(*orders: OrderEvidence, carts: tuple[CartEvidence, ...] = ()) -> set[str]:
    return names_of_violated(Evidence(orders, carts, journal_loses_commits=True))


LOST = replace(PLACED, journal_record=None, repeated=None)
LOST_UNSHIPPED = replace(LOST, intent=GIVEN_UP, shipments=(), confirmations=(), response=UNKNOWN)


@pytest.mark.parametrize("lost", [LOST, LOST_UNSHIPPED])
def test_an_order_that_the_journal_lost_may_be_incomplete(lost: OrderEvidence) -> None:
    assert violated_after_losses(lost) == set()
    assert violated(lost)


@pytest.mark.parametrize(
    ("invariant", "order"),
    [
        ("I1", replace(LOST, charges=(TOTAL, TOTAL))),
        ("I2", replace(LOST, shipments=(SHIPMENT, Shipment("another", {})))),
        ("I3", replace(LOST, charges=())),
        ("I2", replace(PLACED, shipments=())),
    ],
)
def test_a_lost_order_has_no_effect_twice_and_one_in_the_journal_is_complete(
    invariant: str, order: OrderEvidence
) -> None:
    assert violated_after_losses(order) == {invariant}


@pytest.mark.parametrize("contents", [{}, {"mug": 2}])
def test_what_a_lost_order_has_bought_may_be_in_the_cart_but_not_be_bought_twice(contents: dict[str, int]) -> None:
    lost = replace(LOST, intent=RIVALS[0].intent)
    assert violated_after_losses(lost, carts=(cart(contents),)) == set()
    assert violated_after_losses(lost, RIVALS[1], carts=(cart(contents),)) == {"I7"}


def test_nothing_vanishes_from_a_cart_of_which_an_order_was_lost() -> None:
    assert violated_after_losses(LOST_UNSHIPPED, carts=(cart({"mug": 2}),)) == set()
    assert violated_after_losses(LOST_UNSHIPPED, carts=(cart({}),)) == {"I7"}


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


SHIPPED_REVIEW = replace(REVIEW, shipments=(SHIPMENT,))


@pytest.mark.parametrize(
    ("invariants", "order"),
    [
        pytest.param("", REFUND, id="to be refunded"),
        pytest.param("", REVIEW, id="to be reviewed"),
        pytest.param("", SHIPPED_REVIEW, id="to be reviewed, and shipped"),
        pytest.param("I2", flagged("NEEDS_REFUND", justified="DONE"), id="no peer refused to release the charge"),
        pytest.param("I2", flagged("NEEDS_REVIEW", justified="DONE"), id="no peer refused to resolve the shipment"),
        pytest.param("I2", flagged("NEEDS_REVIEW", justified="NEEDS_REFUND"), id="a refund does not justify a review"),
        pytest.param("I2", replace(REFUND, charges=()), id="to be refunded, but not charged"),
        pytest.param("I2", replace(REVIEW, charges=()), id="to be reviewed, but not charged"),
        pytest.param("I2", replace(REFUND, shipments=(SHIPMENT,)), id="to be refunded, but shipped"),
        pytest.param("I4", replace(SHIPPED_REVIEW, confirmations=(CONFIRMATION,)), id="to be reviewed, but confirmed"),
    ],
)
def test_an_order_may_be_left_to_operators_if_a_peer_refused_to_settle_it(
    invariants: str, order: OrderEvidence
) -> None:
    assert " ".join(sorted(violated(order, carts=(cart({"mug": 2}),)))) == invariants
