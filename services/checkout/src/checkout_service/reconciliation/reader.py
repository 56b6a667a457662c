"""Reads order records from checkout, payment, shipping and email, through their internal services."""

import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import InvalidArgument, NotFound, Unimplemented
from chassis.rpc.wire import money_from_wire, time_to_wire
from checkout_service.domain import State
from checkout_service.reconciliation.rules import (
    CompleteSince,
    Digests,
    Mismatch,
    OrderRecords,
    RecordedCharge,
    RecordedConfirmation,
    RecordedOrder,
    RecordedShipment,
    find_mismatches,
)
from shop_internal import mail_records_pb2, orders_pb2, payment_ledger_pb2, shipment_manifest_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.record_digests_pb2 import RecordDigests
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

# An order has this reason if an operator has settled it as shipped. Other SHIPPED and DONE orders have no reason.
SETTLED_SHIPPED = "SETTLED_SHIPPED"

# How far the databases' clocks may differ.
CLOCK_SKEW_SECONDS = 300.0

_MAX_LISTED = 1_000

EffectT = TypeVar("EffectT", RecordedCharge, RecordedShipment)
PageT = TypeVar(
    "PageT",
    orders_pb2.ScanOrdersResponse,
    payment_ledger_pb2.ListChargesResponse,
    shipment_manifest_pb2.ListShipmentsResponse,
)


@dataclass(frozen=True, slots=True)
class Records:
    """A period's records, grouped by order, and the number of charges and shipments among the records."""

    orders: list[OrderRecords]
    charges: int
    shipments: int
    complete_since: CompleteSince

    def mismatches(self, settled_before: float) -> list[Mismatch]:
        """Return all mismatches, oldest first. Records newer than `settled_before` need no counterpart yet."""
        found = (find_mismatches(order, settled_before, self.complete_since) for order in self.orders)
        return sorted(chain.from_iterable(found), key=lambda mismatch: (mismatch.since, mismatch.order_id))


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads records through internal services. `confirmations`: None if the email service keeps no records."""

    journal: OrderJournalStub
    ledger: PaymentLedgerStub
    manifest: ShipmentManifestStub
    confirmations: MailRecordsStub | None

    async def read(self, since: float) -> Records:
        """Return the records of all orders that were created, charged or shipped since `since`, or that are stuck.

        If an older order was charged or shipped since `since`, also return its earlier records.
        """
        orders, orders_since = await self._orders(since)
        charges, (shipments, shipments_since) = await self._charges(since), await self._shipments(since)
        effects: list[RecordedCharge | RecordedShipment] = [*charges, *shipments]
        recorded = {_order_id(effect.key) for effect in effects if effect.recorded_at >= since}
        earlier = [order for order_id in recorded - orders.keys() if (order := await self._find(order_id))]
        begun = min((order.created_at for order in earlier), default=since)
        if begun < since:
            charges, (shipments, shipments_since) = await self._charges(begun), await self._shipments(begun)
        orders |= {order.order_id: order for order in earlier}
        order_ids = [*(recorded | orders.keys())]
        confirmations, confirmations_since = await self._find_confirmations(order_ids)
        charged, shipped = _by_order(charges), _by_order(shipments)
        found = [
            OrderRecords(id_, orders.get(id_), tuple(charged[id_]), tuple(shipped[id_]), confirmations.get(id_))
            for id_ in order_ids
        ]
        # Add older stuck orders. Their charges and shipments were not read, so don't compare them.
        stuck = await self.journal.ListOrders(orders_pb2.ListOrdersRequest(stuck=True, limit=_MAX_LISTED))
        older = [order for order in map(_order_from_wire, stuck.orders) if order.order_id not in orders]
        found += [OrderRecords(order.order_id, order, effects_are_read=False) for order in older]
        complete_since = CompleteSince(orders_since, shipments_since, confirmations_since)
        return Records(found, len(charges), len(shipments), complete_since)

    async def _orders(self, since: float) -> tuple[dict[str, RecordedOrder], float]:
        orders: dict[str, RecordedOrder] = {}
        complete_since = 0.0
        async for page in _pages(self.journal.ScanOrders, orders_pb2.ScanOrdersRequest, since):
            orders |= {order.order_id: _order_from_wire(order) for order in page.orders}
            complete_since = _complete_since(page.complete_since)
        return orders, complete_since

    async def _charges(self, since: float) -> list[RecordedCharge]:
        since -= CLOCK_SKEW_SECONDS
        return [
            RecordedCharge(charge.charge_key, money_from_wire(charge.amount), _seconds(charge.recorded_at))
            async for page in _pages(self.ledger.ListCharges, payment_ledger_pb2.ListChargesRequest, since)
            for charge in page.charges
        ]

    async def _shipments(self, since: float) -> tuple[list[RecordedShipment], float]:
        shipments: list[RecordedShipment] = []
        complete_since = 0.0
        since -= CLOCK_SKEW_SECONDS
        async for page in _pages(self.manifest.ListShipments, shipment_manifest_pb2.ListShipmentsRequest, since):
            shipments += map(_shipment_from_wire, page.shipments)
            complete_since = _complete_since(page.complete_since)
        return shipments, complete_since

    async def _find(self, order_id: str) -> RecordedOrder | None:
        try:
            return _order_from_wire((await self.journal.GetOrder(orders_pb2.GetOrderRequest(order_id=order_id))).order)
        except (NotFound, InvalidArgument):  # other callers of payment or shipping may use keys without an order id
            return None

    async def _find_confirmations(self, order_ids: Sequence[str]) -> tuple[dict[str, RecordedConfirmation], float]:
        """Return confirmations by order id, and the time since which no confirmation has been deleted."""
        if self.confirmations is None:
            return {}, math.inf
        confirmations: dict[str, RecordedConfirmation] = {}
        complete_since = 0.0
        for start in range(0, len(order_ids), _MAX_LISTED):
            request = mail_records_pb2.FindMailsRequest(order_ids=order_ids[start : start + _MAX_LISTED])
            try:
                found = await self.confirmations.FindMails(request)
            except Unimplemented:
                return {}, math.inf
            confirmations |= {mail.order_id: confirmation_from_wire(mail) for mail in found.mails}
            complete_since = _complete_since(found.complete_since)
        return confirmations, complete_since


@asynccontextmanager
async def open_reader(
    channel: Callable[[str, str, str], grpc.aio.Channel], *, with_confirmations: bool = True
) -> AsyncIterator[Reader]:
    """Open a reader. `channel` opens a channel, given a peer, an internal service and the method to retry."""
    async with AsyncExitStack() as stack:

        def open_stub(stub: Any, peer: str, service: str, method: str) -> Any:
            opened = channel(peer, f"shop.internal.{service}", method)
            stack.push_async_callback(opened.close)
            return stub(opened)

        yield Reader(
            open_stub(OrderJournalStub, "checkout", "OrderJournal", "ScanOrders"),
            open_stub(PaymentLedgerStub, "payment", "PaymentLedger", "ListCharges"),
            open_stub(ShipmentManifestStub, "shipping", "ShipmentManifest", "ListShipments"),
            open_stub(MailRecordsStub, "email", "MailRecords", "FindMails") if with_confirmations else None,
        )


async def _pages(
    call: Callable[[Any], Awaitable[PageT]], request: Callable[..., Any], since: float
) -> AsyncIterator[PageT]:
    token = ""
    while True:
        page = await call(request(since=time_to_wire(max(since, 0.0)), page_token=token))
        yield page
        token = page.next_page_token
        if not token:
            return


def _complete_since(at: Timestamp) -> float:
    """Convert a service's `complete_since` to seconds, adding a margin because other services' clocks may differ."""
    return _seconds(at) + CLOCK_SKEW_SECONDS


def _order_id(key: str) -> str:
    """Return the order id from a charge or shipment key, which is `order_id` or `order_id:attempt`."""
    return key.partition(":")[0]


def _by_order(effects: Iterable[EffectT]) -> defaultdict[str, list[EffectT]]:
    found: defaultdict[str, list[EffectT]] = defaultdict(list)
    for effect in effects:
        found[_order_id(effect.key)].append(effect)
    return found


def _shipment_from_wire(shipment: shipment_manifest_pb2.RecordedShipment) -> RecordedShipment:
    recorded_at, digests = _seconds(shipment.recorded_at), _digests(shipment.digests)
    return RecordedShipment(shipment.shipment_key, shipment.tracking_id, recorded_at, digests)


def _order_from_wire(order: orders_pb2.Order) -> RecordedOrder:
    state = orders_pb2.OrderState.Name(order.state).removeprefix("ORDER_STATE_")
    return RecordedOrder(
        order.order_id,
        state,
        order.attempt,
        money_from_wire(order.total),
        _seconds(order.created_at),
        _seconds(order.updated_at),
        is_settled=state == State.SETTLED or order.reason == SETTLED_SHIPPED,
        digests=_digests(order.digests),
    )


def confirmation_from_wire(mail: mail_records_pb2.Mail) -> RecordedConfirmation:
    state = mail_records_pb2.MailState.Name(mail.state).removeprefix("MAIL_STATE_")
    detail = f"{state.lower()} {mail.reason}".rstrip()
    return RecordedConfirmation(mail.state == mail_records_pb2.MAIL_STATE_FAILED, detail, _digests(mail.digests))


def _digests(digests: RecordDigests) -> Digests:
    return {field.name: value for field, value in digests.ListFields()}


def _seconds(at: Timestamp) -> float:
    return at.ToNanoseconds() / 1e9
