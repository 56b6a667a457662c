"""Each invariant finds its violations, and finds none in correct evidence."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
    items=[OrderItem(item=CartItem(product_id="mug", quantity=2), cost=WireMoney(currency_code="EUR", units=10))],
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
LOST = replace(PLACED, journal_record=None, repeated=None)
LOST_UNSHIPPED = replace(LOST, intent=GIVEN_UP, shipments=(), confirmations=(), response=UNKNOWN)
LOST_RIVAL = replace(LOST, intent=RIVALS[0].intent)


def of(*orders: OrderEvidence, contents: Mapping[str, int] | None = None, **others: Any) -> Evidence:
    """Return evidence of orders, by default of one that was placed; with a cart if its contents are given."""
    added = {"mug": 2, **others.pop("added_late", {})}
    carts = () if contents is None else (CartEvidence(Customer(INTENT.user_id, ((INTENT,),)), added, contents),)
    return Evidence(orders or (PLACED,), carts, **{"quiet_seconds": 1.0, **others})


lossy = partial(of, journal_loses_commits=True)


def confirmed(text: str, instead: str = "") -> OrderEvidence:
    """Return a placed order whose confirmation has another text instead of one."""
    return replace(PLACED, confirmations=(replace(CONFIRMATION, text=CONFIRMATION.text.replace(text, instead)),))


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


def names_of_violated(evidence: Evidence) -> str:
    return " ".join(sorted(invariant.name for invariant in check_invariants(evidence) if not invariant.holds))


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
        pytest.param(lossy(LOST), id="an order that the journal lost"),
        pytest.param(lossy(LOST_UNSHIPPED), id="an order that the journal lost before it was shipped"),
        pytest.param(lossy(LOST_UNSHIPPED, contents={"mug": 2}), id="a cart of which an order was lost"),
        pytest.param(lossy(LOST_RIVAL, contents={}), id="a lost order that emptied the cart"),
        pytest.param(lossy(LOST_RIVAL, contents={"mug": 2}), id="what a lost order has bought is still in the cart"),
        pytest.param(of(REFUND, contents={"mug": 2}), id="to be refunded"),
        pytest.param(of(REVIEW, contents={"mug": 2}), id="to be reviewed"),
        pytest.param(of(SHIPPED_REVIEW, contents={"mug": 2}), id="to be reviewed, and shipped"),
    ],
)
def test_correct_evidence_violates_nothing(evidence: Evidence) -> None:
    assert names_of_violated(evidence) == ""


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
        pytest.param("I5", of(LOST), id="an order that is not in a journal that loses nothing"),
        pytest.param("I2 I8", of(LOST_UNSHIPPED), id="a charge that is not in a journal that loses nothing"),
        pytest.param("I1", lossy(replace(LOST, charges=(TOTAL, TOTAL))), id="two charges of a lost order"),
        pytest.param("I2", lossy(replace(LOST, shipments=(SHIPMENT,) * 2)), id="two shipments of a lost order"),
        pytest.param("I3", lossy(replace(LOST, charges=())), id="a shipment of a lost order without a charge"),
        pytest.param("I2", lossy(replace(PLACED, shipments=())), id="an incomplete order that is not lost"),
        *(
            pytest.param("I7", lossy(LOST_RIVAL, RIVALS[1], contents=contents), id=f"bought twice, left {contents}")
            for contents in ({}, {"mug": 2})
        ),
        pytest.param("I7", lossy(LOST_UNSHIPPED, contents={}), id="what a lost order did not buy vanished"),
        pytest.param("I2", of(flagged("NEEDS_REFUND", justified="DONE")), id="no peer refused to release the charge"),
        pytest.param("I2", of(flagged("NEEDS_REVIEW", justified="DONE")), id="no peer refused to resolve the shipment"),
        pytest.param("I2", of(flagged("NEEDS_REVIEW", justified="NEEDS_REFUND")), id="a refund justifies no review"),
        pytest.param("I2", of(replace(REFUND, charges=())), id="to be refunded, but not charged"),
        pytest.param("I2", of(replace(REVIEW, charges=())), id="to be reviewed, but not charged"),
        pytest.param("I2", of(replace(REFUND, shipments=(SHIPMENT,))), id="to be refunded, but shipped"),
        pytest.param("I4", of(replace(SHIPPED_REVIEW, confirmations=(CONFIRMATION,))), id="reviewed, but confirmed"),
    ],
)
def test_wrong_evidence_violates_its_invariants(invariants: str, evidence: Evidence) -> None:
    assert names_of_violated(evidence) == invariants
