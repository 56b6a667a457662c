import math
from dataclasses import replace
from typing import Any

import pytest

from chassis.values.money import Money
from checkout_service.domain import RELEASED_CART
from checkout_service.reconciliation.reader import message_from_wire
from checkout_service.reconciliation.rules import (
    Charge,
    CompleteSince,
    Kind,
    Message,
    Order,
    OrderRecords,
    Shipment,
    find_mismatches,
)
from shop_internal import mail_records_pb2

PRICE = Money.of("EUR", 12)
NOW = 1_000.0
CHARGE = Charge("id:1", PRICE, 10.0)
SHIPMENT = Shipment("id", "SHOP-1", 11.0)
ELSEWHERE = replace(SHIPMENT, digests={"city": b"b"})
MESSAGE = Message(failed=False, detail="sent")
MAIL = Message(failed=False, detail="sent", digests={"confirmation": b"b"})
NOTHING_DELETED = CompleteSince()


def order(state: str = "DONE", **changed: Any) -> Order:
    return replace(Order("id", state, 1, PRICE, 9.0, 12.0), **changed)


FINISHED = OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), MESSAGE)
NOT_SENT = replace(FINISHED, message=Message(failed=True, detail="failed"))


def kinds(
    records: OrderRecords,
    settled_before: float = NOW,
    *,
    complete_since: CompleteSince = NOTHING_DELETED,
) -> list[Kind]:
    return [mismatch.kind for mismatch in find_mismatches(records, settled_before, complete_since)]


@pytest.mark.parametrize(
    "records",
    [
        FINISHED,
        *(OrderRecords("id", order(state)) for state in RELEASED_CART),
        *(OrderRecords("id", order("SETTLED", is_settled=True), (CHARGE,) * n, (SHIPMENT,) * n) for n in range(3)),
        OrderRecords("id", order(attempt=2), (Charge("id:2", PRICE, 10.0),), (SHIPMENT,), MESSAGE),
    ],
)
def test_the_records_of_a_finished_order_agree(records: OrderRecords) -> None:
    assert kinds(records) == []


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        (Kind.CHARGED_TWICE, replace(FINISHED, charges=(CHARGE, replace(CHARGE, key="id:2")))),
        (Kind.AMOUNT_DIFFERS, replace(FINISHED, charges=(replace(CHARGE, amount=Money.of("EUR", 13)),))),
        (Kind.AMOUNT_DIFFERS, replace(FINISHED, charges=(replace(CHARGE, amount=Money.of("USD", 12)),))),
        (Kind.ATTEMPT_DIFFERS, replace(FINISHED, charges=(replace(CHARGE, key="id:2"),))),
        (Kind.SHIPPED_TWICE, replace(FINISHED, shipments=(SHIPMENT, SHIPMENT))),
        (Kind.SHIPPED_NOT_CHARGED, replace(FINISHED, charges=())),
        (Kind.CHARGED_NOT_SHIPPED, replace(FINISHED, shipments=())),
        (Kind.NOT_CHARGED, replace(FINISHED, charges=(), shipments=())),
        *((Kind.REFUSED_BUT_CHARGED, OrderRecords("id", order(state), (CHARGE,))) for state in RELEASED_CART),
        *((Kind.REFUSED_BUT_SHIPPED, OrderRecords("id", order(state), (), (SHIPMENT,))) for state in RELEASED_CART),
        (Kind.PARCEL_DIFFERS, replace(FINISHED, order=order(digests={"city": b"a"}), shipments=(ELSEWHERE,))),
        (Kind.MAIL_DIFFERS, replace(FINISHED, order=order(digests={"confirmation": b"a"}), message=MAIL)),
        (Kind.UNKNOWN_ORDER, replace(FINISHED, order=None)),
        (Kind.NOT_MAILED, replace(FINISHED, message=None)),
        (Kind.NOT_MAILED, OrderRecords("id", order(is_settled=True), (CHARGE,))),
        (Kind.NOT_MAILED, NOT_SENT),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("CHARGING"))),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("NEEDS_REFUND"), (CHARGE,))),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("NEEDS_REVIEW"), (CHARGE,))),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("NEEDS_REVIEW"), (CHARGE,), (SHIPMENT,))),
        (Kind.OPEN_TOO_LONG, OrderRecords("id", order("NEEDS_REFUND"), effects_are_read=False)),
        (
            Kind.OPEN_TOO_LONG,
            OrderRecords("id", order("NEEDS_REVIEW", digests={"confirmation": b"a"}), (CHARGE,), (), MAIL),
        ),
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


@pytest.mark.parametrize(
    "records",
    [
        OrderRecords("id", order("CHARGING"), (CHARGE,)),
        OrderRecords("id", order("SHIPPED"), (CHARGE,), (SHIPMENT,)),
        OrderRecords("id", order("CHARGING"), (replace(CHARGE, recorded_at=1.0),), (), MESSAGE),
    ],
)
def test_the_steps_of_a_recent_order_are_not_missed(records: OrderRecords) -> None:
    assert kinds(records, settled_before=10.0) == []


@pytest.mark.parametrize(("state", "failed"), [("QUEUED", False), ("SENT", False), ("FAILED", True)])
def test_a_confirmation_that_waits_for_the_relay_has_not_failed(state: str, failed: bool) -> None:
    mail = mail_records_pb2.Mail(state=mail_records_pb2.MailState.Value(f"MAIL_STATE_{state}"))
    assert message_from_wire(mail).failed is failed


def test_messages_that_were_not_read_are_not_missed() -> None:
    assert kinds(replace(FINISHED, message=None), complete_since=CompleteSince(messages=math.inf)) == []


@pytest.mark.parametrize(
    ("records", "complete_since"),
    [
        (replace(FINISHED, order=None), CompleteSince(orders=15.0)),
        (replace(FINISHED, shipments=()), CompleteSince(shipments=15.0)),
        (replace(FINISHED, message=None), CompleteSince(messages=15.0)),
    ],
)
def test_what_may_have_been_deleted_because_of_its_age_is_not_missed(
    records: OrderRecords, complete_since: CompleteSince
) -> None:
    assert len(kinds(records)) == 1
    assert kinds(records, complete_since=complete_since) == []


def test_a_message_that_was_not_sent_is_a_mismatch_however_old_its_order_is() -> None:
    assert kinds(NOT_SENT, complete_since=CompleteSince(messages=15.0)) == [Kind.NOT_MAILED]


def test_charges_are_never_deleted() -> None:
    never_charged = replace(FINISHED, charges=())
    assert kinds(never_charged, complete_since=CompleteSince(15.0, 15.0, 15.0)) == [Kind.SHIPPED_NOT_CHARGED]


def test_a_mismatch_has_the_time_of_the_record_without_a_counterpart() -> None:
    records = OrderRecords("id", order("VOIDED"), (CHARGE,))
    (mismatch,) = find_mismatches(records, settled_before=NOW, complete_since=NOTHING_DELETED)
    assert (mismatch.order_id, mismatch.state, mismatch.since) == ("id", "VOIDED", CHARGE.recorded_at)
