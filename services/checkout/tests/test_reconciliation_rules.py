import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from chassis.values.money import Money
from checkout_service.domain import OPEN, RELEASED_CART
from checkout_service.reconciliation.__main__ import NOT_READ, ReconciliationSettings, _compare_in_time, main
from checkout_service.reconciliation.reader import Comparison, Reader, _order_from_wire, _pages, confirmation_from_wire
from checkout_service.reconciliation.rules import (
    CompleteSince,
    Effect,
    Kind,
    Mismatch,
    OrderRecords,
    RecordedOrder,
    find_mismatches,
)
from shop_cli.local.ports import reserved
from shop_internal import mail_records_pb2, orders_pb2
from shop_internal.payment_ledger_pb2 import CapturedCharge, ListChargesResponse
from shop_internal.shipment_manifest_pb2 import ListShipmentsResponse
from shop_kit.serving import serve
from shop_kit.waiting import wait_until

PRICE = Money.of("EUR", 12)
NOW = 1_000.0
CHARGE = Effect("id:1", "12.00 EUR", 10.0, PRICE)
SHIPMENT = Effect("id", "SHOP-1", 11.0)
CONFIRMATION = Effect("id", "sent", digests={"prices": b"an older release of checkout has none"})


def order(state: str = "DONE", **changed: Any) -> RecordedOrder:
    return replace(RecordedOrder("id", state, 1, PRICE, 9.0, 12.0), **changed)


FINISHED = OrderRecords("id", order(), (CHARGE,), (SHIPMENT,), (CONFIRMATION,))
SETTLED_SHIPPED = order(settlement="settled_shipped", digests={"tracking": b"one", "address": b"one"})
SHIPMENT_OF_OTHERS = replace(SHIPMENT, digests={"tracking": b"two"})
NOT_SENT = replace(FINISHED, confirmations=(replace(CONFIRMATION, failed=True),))


def kinds(records: OrderRecords, due_before: float = NOW, complete_since: CompleteSince | None = None) -> list[Kind]:
    found = find_mismatches(records, complete_since or {})
    return [mismatch.kind for mismatch in found if mismatch.is_due(due_before, NOW)]


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
        (Kind.SHIPPED_NOT_CHARGED, replace(FINISHED, order=order(settlement="settled_dismissed"), charges=())),
        (Kind.NOT_MAILED, replace(FINISHED, confirmations=())),
        (Kind.NOT_MAILED, OrderRecords("id", order(settlement="settled_shipped"), (CHARGE,))),
        (Kind.NOT_MAILED, NOT_SENT),
        (Kind.PARCEL_DIFFERS, replace(FINISHED, order=SETTLED_SHIPPED, shipments=(SHIPMENT_OF_OTHERS,))),
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
    (mismatch,) = find_mismatches(records, complete_since={})
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


FOUND = Comparison()
ENDED = orders_pb2.Order(order_id="id", state=orders_pb2.ORDER_STATE_ABANDONED)


class RestartedPeer:
    """Reads that fail so many times before one succeeds."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    async def compare(self, since: float, _due_before: float, **_: float) -> Comparison:
        assert since > 0
        self.failures -= 1
        if self.failures >= 0:
            raise Unavailable("going away")
        return FOUND


def settings(wait_seconds: float) -> ReconciliationSettings:
    return ReconciliationSettings(
        checkout_internal_addr="peer:1",
        payment_internal_addr="peer:1",
        shipping_internal_addr="peer:1",
        wait_seconds=wait_seconds,
    )


async def test_records_are_read_again_when_a_peer_is_replaced_meanwhile() -> None:
    reader = cast("Reader", RestartedPeer(failures=2))
    assert await _compare_in_time(reader, {}, settings(wait_seconds=60)) is FOUND


async def test_the_job_ends_with_the_last_error_when_its_time_is_over() -> None:
    reader = cast("Reader", RestartedPeer(failures=1))
    with pytest.raises(Unavailable, match="^going away$"):
        await _compare_in_time(reader, {}, settings(wait_seconds=0))


async def test_a_peer_that_answers_late_is_waited_for_and_named_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    with reserved(1) as (port,):
        payment = channel(f"127.0.0.1:{port}", "", timeout_seconds=1)
        reader = cast("Reader", RestartedPeer(failures=0))
        waiting = asyncio.create_task(_compare_in_time(reader, {"payment": payment}, settings(wait_seconds=300)))
        await wait_until(lambda: "payment" in capsys.readouterr().out)
        async with serve(port=port):
            assert await waiting is FOUND
        await payment.close()


def test_peers_that_never_answer_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for peer in ("CHECKOUT", "PAYMENT", "SHIPPING"):
        monkeypatch.setenv(f"{peer}_INTERNAL_ADDR", "127.0.0.1:1")
    monkeypatch.setenv("WAIT_SECONDS", "0.1")
    assert main() == NOT_READ
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["event"], last["reason"]) == ("records not read", "UNAVAILABLE")
    assert last["message"].startswith("checkout, payment, shipping did not answer for 0.1 s: ")


def test_mismatches_that_cannot_be_recorded_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullJournal(RestartedPeer):
        async def record(self, _found: Comparison) -> None:
            raise Unavailable("disk full")

    found = Mismatch(Kind.UNKNOWN_ORDER, Effect(":1", "").order_id, "", 0.0, "")
    for peer in ("CHECKOUT", "PAYMENT", "SHIPPING"):
        monkeypatch.setenv(f"{peer}_INTERNAL_ADDR", "127.0.0.1:1")
    monkeypatch.setattr(FOUND, "mismatches", [found])
    monkeypatch.setattr(f"{main.__module__}.open_reader", lambda *_, **__: nullcontext(FullJournal(failures=0)))
    assert main() == NOT_READ
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line.get("order_id")) for line in lines] == [("mismatch", ":1"), ("records not read", None)]


async def test_orders_that_arrive_while_records_are_read_do_not_keep_the_job_from_ending() -> None:
    pages = [5, 5, 3, *[1] * 100]

    async def scan(request: orders_pb2.ScanOrdersRequest) -> orders_pb2.ScanOrdersResponse:
        number = int(request.page_token or 0)
        return orders_pb2.ScanOrdersResponse(orders=[ENDED] * pages[number], next_page_token=str(number + 1))

    read = _pages(scan, orders_pb2.ScanOrdersRequest, "orders", _order_from_wire, 0.0)
    assert [len(page) async for page in read] == [5, 5, 3]


def reader_of(*scans: orders_pb2.Order, earlier: Iterable[str] = (), charges: Iterable[CapturedCharge] = ()) -> Reader:
    """Return a reader of one order, which `scans` shows one after the other, and the last one always."""

    def answering(*responses: Message) -> Callable[[Any], Awaitable[Message]]:
        remaining = [*responses]

        async def answer(_request: Message) -> Message:
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return answer

    mismatches = [orders_pb2.OpenMismatch(order_id="id", kind=kind) for kind in earlier]
    journal = SimpleNamespace(
        ListMismatches=answering(orders_pb2.ListMismatchesResponse(mismatches=mismatches)),
        ScanOrders=answering(*(orders_pb2.ScanOrdersResponse(orders=[order]) for order in scans)),
        ListOrders=answering(orders_pb2.ListOrdersResponse(orders=scans[:1])),
    )
    ledger = SimpleNamespace(ListCharges=answering(ListChargesResponse(charges=charges)))
    manifest = SimpleNamespace(ListShipments=answering(ListShipmentsResponse()))
    return Reader(cast("Any", journal), cast("Any", ledger), cast("Any", manifest), confirmations=None)


async def test_earlier_mismatches_of_e_mails_stay_open_while_no_e_mails_are_read() -> None:
    reader = reader_of(ENDED, earlier=["MAIL_DIFFERS", "PARCEL_DIFFERS"])
    found = await reader.compare(since=1.0, due_before=2.0, within_seconds=0.0)
    assert [mismatch.kind for mismatch in found.agreed] == ["PARCEL_DIFFERS"]
    assert found.hours_read == 0.0  # time is over, so it is incomplete


@pytest.mark.parametrize("attempt", [0, 1])
async def test_an_order_that_has_changed_since_it_was_read_is_not_judged(attempt: int) -> None:
    changed = orders_pb2.Order(order_id="id", state=ENDED.state, attempt=attempt)
    reader = reader_of(ENDED, ENDED, ENDED, changed, charges=[CapturedCharge(charge_key="id:1")])
    found = await reader.compare(since=1.0, due_before=2.0)
    assert bool(found.mismatches) is (changed == ENDED)
