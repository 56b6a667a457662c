import math
from dataclasses import replace
from typing import Any

import pytest

from chassis.values.money import Money
from checkout_service.domain import OPEN, RELEASED_CART
from checkout_service.reconciliation.reader import Comparison, confirmation_from_wire
from checkout_service.reconciliation.rules import (
    CompleteSince,
    Effect,
    Kind,
    OrderRecords,
    RecordedOrder,
    find_mismatches,
)
from shop_internal import mail_records_pb2

PRICE = Money.of("EUR", 12)
NOW = 1_000.0
CHARGE = Effect("id:1", "12.00 EUR", 10.0, PRICE)
SHIPMENT = Effect("id", "SHOP-1", 11.0)
CONFIRMATION = Effect("id", "sent", digests={"prices": b"an older release of checkout has none"})


def order(state: str = "DONE", **changed: Any) -> RecordedOrder:
    return replace(RecordedOrder("id", state, 1, PRICE, 9.0, 12.0), **changed)


FINISHED = OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), (CONFIRMATION,))
NOT_SENT = replace(FINISHED, confirmations=(replace(CONFIRMATION, failed=True),))


def kinds(records: OrderRecords, due_before: float = NOW, complete_since: CompleteSince | None = None) -> list[Kind]:
    found = find_mismatches(records, due_before, complete_since or {}, now=NOW)
    return [mismatch.kind for mismatch in found]


@pytest.mark.parametrize(
    "records",
    [
        FINISHED,
        *(OrderRecords("id", order(state)) for state in RELEASED_CART),
        OrderRecords("id", order("SETTLED", settlement="settled_refunded")),
        OrderRecords("id", order("SETTLED", settlement="settled_dismissed"), (), (SHIPMENT,)),
        replace(FINISHED, order=order(settlement="settled_shipped"), shipments=()),
        replace(FINISHED, order=order(attempt=2), charges=(replace(CHARGE, key="id:2"),)),
        *(OrderRecords("id", order(state, in_progress=True), (CHARGE,)) for state in OPEN),
    ],
)
def test_the_records_of_a_finished_order_agree(records: OrderRecords) -> None:
    assert kinds(records) == []


@pytest.mark.parametrize(
    ("records", "read"),
    [
        # The order is recent.
        (OrderRecords("id", order("CHARGING"), (CHARGE,)), {"due_before": 10.0}),
        (OrderRecords("id", order("SHIPPED"), (CHARGE,), (SHIPMENT,)), {"due_before": 10.0}),
        (
            OrderRecords("id", order("CHARGING"), (replace(CHARGE, recorded_at=1.0),), (), (CONFIRMATION,)),
            {"due_before": 10.0},
        ),
        # Messages were not read.
        (replace(FINISHED, confirmations=()), {"complete_since": {Kind.NOT_MAILED: math.inf}}),
        # It may have been deleted because of its age.
        (replace(FINISHED, order=None), {"complete_since": {Kind.UNKNOWN_ORDER: 15.0}}),
        (replace(FINISHED, shipments=()), {"complete_since": {Kind.CHARGED_NOT_SHIPPED: 15.0}}),
        (replace(FINISHED, confirmations=()), {"complete_since": {Kind.NOT_MAILED: 15.0}}),
    ],
)
def test_what_may_follow_or_may_have_been_deleted_is_not_missed(records: OrderRecords, read: dict[str, Any]) -> None:
    assert kinds(records) != []
    assert kinds(records, **read) == []


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        (Kind.CHARGED_TWICE, replace(FINISHED, charges=(CHARGE, replace(CHARGE, key="id:2", recorded_at=NOW * 2)))),
        (Kind.SHIPPED_NOT_CHARGED, replace(FINISHED, charges=())),
        (Kind.CHARGED_NOT_SHIPPED, replace(FINISHED, shipments=())),
        (Kind.NOT_CHARGED, replace(FINISHED, charges=(), shipments=())),
        (Kind.REFUSED_BUT_CHARGED, OrderRecords("id", order("SETTLED", settlement="settled_refunded"), (CHARGE,))),
        (Kind.SHIPPED_NOT_CHARGED, replace(FINISHED, order=order(settlement="settled_shipped"), charges=())),
        (Kind.NOT_MAILED, replace(FINISHED, confirmations=())),
        (Kind.NOT_MAILED, OrderRecords("id", order(settlement="settled_shipped"), (CHARGE,))),
        (Kind.NOT_MAILED, NOT_SENT),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("CHARGING"))),
    ],
)
def test_records_that_disagree_are_found(kind: Kind, records: OrderRecords) -> None:
    assert kinds(records) == [kind]


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        (Kind.NOT_CHARGED, OrderRecords("id", order("NEEDS_REFUND"))),
        (Kind.REFUSED_BUT_SHIPPED, OrderRecords("id", order("NEEDS_REFUND"), (CHARGE,), (SHIPMENT,))),
    ],
)
def test_an_order_that_waits_for_an_operator_may_disagree_too(kind: Kind, records: OrderRecords) -> None:
    assert kinds(records) == [kind, Kind.OPEN_TOO_LONG]


@pytest.mark.parametrize(("state", "failed"), [("QUEUED", False), ("SENT", False), ("FAILED", True)])
def test_a_confirmation_that_waits_for_the_relay_has_not_failed(state: str, failed: bool) -> None:
    mail = mail_records_pb2.Mail(state=mail_records_pb2.MailState.Value(f"MAIL_STATE_{state}"))
    assert confirmation_from_wire(mail).failed is failed


@pytest.mark.parametrize(
    ("kind", "records"),
    [(Kind.NOT_MAILED, NOT_SENT), (Kind.SHIPPED_NOT_CHARGED, replace(FINISHED, charges=()))],
    ids=["a message that was not sent", "charges, which are never deleted"],
)
def test_some_mismatches_are_found_however_old_their_order_is(kind: Kind, records: OrderRecords) -> None:
    missing = (Kind.UNKNOWN_ORDER, Kind.CHARGED_NOT_SHIPPED, Kind.NOT_MAILED)
    assert kinds(records, complete_since=dict.fromkeys(missing, 15.0)) == [kind]


def test_a_mismatch_has_the_time_of_the_record_without_a_counterpart() -> None:
    records = OrderRecords("id", order("VOIDED"), (CHARGE,))
    (mismatch,) = find_mismatches(records, due_before=NOW, complete_since={})
    assert (mismatch.order_id, mismatch.state, mismatch.since) == ("id", "VOIDED", CHARGE.recorded_at)


def test_each_order_is_in_one_group_and_the_effects_of_compared_orders_alone_are_counted() -> None:
    found = Comparison()
    for state, changes in (
        ("DONE", {}),
        ("DECLINED", {}),
        ("NEEDS_REFUND", {}),
        ("DONE", {"settlement": "SETTLED_SHIPPED"}),
        ("SETTLING", {"settlement": "SETTLED_REFUNDED", "in_progress": True}),
    ):
        found.add(replace(FINISHED, order=order(state, **changes)))
    found.add(replace(FINISHED, order=None))
    assert (found.complete, found.declined, found.closed, found.in_progress) == (1, 1, 2, 1)
    assert (found.orders, found.charges, found.shipments, found.confirmations) == (5, 5, 5, 5)
