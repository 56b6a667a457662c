import pytest

from chassis.values.money import Money
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

PRICE = Money.of("EUR", 12)
NOW = 1_000.0
CHARGE = Charge("id:1", PRICE, 10.0)
SHIPMENT = Shipment("id", "SHOP-1", 11.0)
MESSAGE = Message(failed=False, detail="sent")
NOTHING_DELETED = CompleteSince()


def order(state: str = "DONE", *, is_open: bool = False, changed_at: float = 12.0) -> Order:
    return Order("id", state, is_open, PRICE, 9.0, changed_at)


def kinds(
    records: OrderRecords,
    settled_before: float = NOW,
    *,
    messages_are_read: bool = True,
    complete_since: CompleteSince = NOTHING_DELETED,
) -> list[Kind]:
    found = find_mismatches(
        records, settled_before=settled_before, messages_are_read=messages_are_read, complete_since=complete_since
    )
    return [mismatch.kind for mismatch in found]


@pytest.mark.parametrize(
    "records",
    [
        OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), MESSAGE),
        OrderRecords("id", order("DECLINED")),
        OrderRecords("id", order("ABANDONED")),
        OrderRecords("id", order("VOIDED")),
    ],
)
def test_the_records_of_a_finished_order_agree(records: OrderRecords) -> None:
    assert kinds(records) == []


SECOND_CHARGE = Charge("id:2", PRICE, 20.0)
OTHER_CHARGE = Charge("id:1", Money.of("EUR", 13), 10.0)
SECOND_SHIPMENT = Shipment("id:2", "SHOP-2", 20.0)


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        (OrderRecords("id", order(), (CHARGE, SECOND_CHARGE), (SHIPMENT,), MESSAGE), Kind.CHARGED_TWICE),
        (
            OrderRecords("id", order(), (CHARGE,), (SHIPMENT, SECOND_SHIPMENT), MESSAGE),
            Kind.SHIPPED_TWICE,
        ),
        (OrderRecords("id", order("DECLINED"), (CHARGE,)), Kind.CHARGED_NOT_SHIPPED),
        (OrderRecords("id", order(), (), (SHIPMENT,), MESSAGE), Kind.SHIPPED_NOT_CHARGED),
        (
            OrderRecords("id", order(), (OTHER_CHARGE,), (SHIPMENT,), MESSAGE),
            Kind.AMOUNT_DIFFERS,
        ),
        (OrderRecords("id", order(), (CHARGE,), (SHIPMENT,)), Kind.NOT_MAILED),
        (OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), Message(failed=True, detail="failed")), Kind.NOT_MAILED),
        (OrderRecords("id", order("CHARGING", is_open=True)), Kind.OPEN_TOO_LONG),
        (OrderRecords("id", None, (CHARGE,), (SHIPMENT,), MESSAGE), Kind.UNKNOWN_ORDER),
    ],
)
def test_records_that_disagree_are_a_mismatch(records: OrderRecords, kind: Kind) -> None:
    assert kinds(records) == [kind]


@pytest.mark.parametrize(
    "records",
    [
        OrderRecords("id", order("CHARGING", is_open=True), (CHARGE,)),
        OrderRecords("id", order("SHIPPED", is_open=True), (CHARGE,), (SHIPMENT,)),
    ],
)
def test_the_steps_of_a_recent_order_are_not_missed(records: OrderRecords) -> None:
    assert kinds(records, settled_before=10.0) == []


def test_messages_that_were_not_read_are_not_missed() -> None:
    assert kinds(OrderRecords("id", order(), (CHARGE,), (SHIPMENT,)), messages_are_read=False) == []


@pytest.mark.parametrize(
    ("records", "complete_since"),
    [
        (OrderRecords("id", None, (CHARGE,), (SHIPMENT,), MESSAGE), CompleteSince(orders=15.0)),
        (OrderRecords("id", order(), (CHARGE,)), CompleteSince(shipments=15.0)),
        (OrderRecords("id", order(), (CHARGE,), (SHIPMENT,)), CompleteSince(messages=15.0)),
    ],
)
def test_what_may_have_been_deleted_because_of_its_age_is_not_missed(
    records: OrderRecords, complete_since: CompleteSince
) -> None:
    assert len(kinds(records)) == 1
    assert kinds(records, complete_since=complete_since) == []


def test_a_message_that_was_not_sent_is_a_mismatch_however_old_its_order_is() -> None:
    records = OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), Message(failed=True, detail="failed"))
    assert kinds(records, complete_since=CompleteSince(messages=15.0)) == [Kind.NOT_MAILED]


def test_charges_are_never_deleted() -> None:
    complete_since = CompleteSince(15.0, 15.0, 15.0)
    assert kinds(OrderRecords("id", order(), (), (SHIPMENT,)), complete_since=complete_since) == [
        Kind.SHIPPED_NOT_CHARGED
    ]


def test_a_mismatch_has_the_time_of_the_record_without_a_counterpart() -> None:
    records = OrderRecords("id", order("VOIDED"), (CHARGE,))
    (mismatch,) = find_mismatches(records, settled_before=NOW, messages_are_read=True, complete_since=NOTHING_DELETED)
    assert (mismatch.order_id, mismatch.state, mismatch.since) == ("id", "VOIDED", CHARGE.recorded_at)
