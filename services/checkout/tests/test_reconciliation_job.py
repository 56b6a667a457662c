"""The job waits for its peers, and reads again while one fails."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from checkout_service.reconciliation.__main__ import NOT_READ, ReconciliationSettings, _compare_in_time, main
from checkout_service.reconciliation.reader import Comparison, Reader, _order_from_wire, _pages
from shop_cli.local.ports import reserved
from shop_internal import orders_pb2
from shop_internal.payment_ledger_pb2 import CapturedCharge, ListChargesResponse
from shop_internal.shipment_manifest_pb2 import ListShipmentsResponse
from shop_kit.serving import serve
from shop_kit.waiting import wait_until

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
