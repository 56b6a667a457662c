"""Reads order records from checkout, payment, shipping and email, through their internal services, and compares them.

An order is compared with all its charges, shipments and confirmations, whatever their dates, because these are looked
up by order id. At most one page of orders is in memory at a time.
"""

import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.errors import Unavailable, Unimplemented
from chassis.rpc.wire import money_from_wire, time_to_wire
from checkout_service.domain import MAX_OPEN_MISMATCHES, NEEDS_OPERATOR, OPEN, RELEASED_CART, State
from checkout_service.reconciliation.rules import (
    MAIL_KINDS,
    CompleteSince,
    Digests,
    Effect,
    Kind,
    Mismatch,
    OrderRecords,
    RecordedOrder,
    find_mismatches,
)
from shop_internal import mail_records_pb2, orders_pb2, payment_ledger_pb2, shipment_manifest_pb2
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.record_digests_pb2 import RecordDigests
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

# How far the databases' clocks may differ.
CLOCK_SKEW_SECONDS = 300.0

_MAX_LISTED = 1_000
# Remember this many recently seen order ids, because most charges and shipments follow soon after their order, and then
# need no lookup. Looking up an order twice is slower but harmless.
_RECENT = 20_000

Record: TypeAlias = RecordedOrder | Effect


@dataclass(slots=True)
class Comparison:
    """The totals of a comparison, and the mismatches that it found, oldest first.

    Every order counted in `orders` is either in progress, closed, declined or complete. If all records agree, each
    complete order has one charge and one shipment.

    Attributes:
        in_progress: the number of orders that were not compared, because they may be changing.
        closed: the number of orders that an operator has settled or must settle.
        declined: the number of orders that ended without a charge.
        complete: the number of placed orders.
        confirmations: the number of confirmations, except those that will never be sent.
        mismatches: the mismatches that no operator has accepted.
        agreed: the mismatches from earlier comparisons whose records now agree.
        hours_read: how many hours of the window were compared before time ran out; None if the comparison is complete.
    """

    orders: int = 0
    complete: int = 0
    declined: int = 0
    in_progress: int = 0
    closed: int = 0
    charges: int = 0
    shipments: int = 0
    confirmations: int = 0
    mails_are_read: bool = True
    mismatches: list[Mismatch] = field(default_factory=list)
    agreed: list[orders_pb2.OpenMismatch] = field(default_factory=list)
    hours_read: float | None = None

    def add(self, records: OrderRecords) -> None:
        order = records.order
        if order is not None:
            self.orders += 1
            if order.in_progress:
                self.in_progress += 1
            elif order.settlement or order.state in NEEDS_OPERATOR | {State.SETTLED}:
                self.closed += 1
            elif order.state in RELEASED_CART:
                self.declined += 1
            else:
                self.complete += 1
        if order is None or not order.in_progress:
            self.charges += len(records.charges)
            self.shipments += len(records.shipments)
            self.confirmations += sum(not confirmation.failed for confirmation in records.confirmations)


Orders: TypeAlias = dict[str, RecordedOrder | None]
"""Maps order ids to orders, or to None if the journal has no such order."""

OpenMismatches: TypeAlias = dict[str, dict[str, orders_pb2.OpenMismatch]]
"""Maps order ids, then mismatch kinds, to the mismatches recorded earlier."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads records through internal services. `confirmations` is None if the email service keeps no records."""

    journal: OrderJournalStub
    ledger: PaymentLedgerStub
    manifest: ShipmentManifestStub
    confirmations: MailRecordsStub | None

    async def compare(self, since: float, due_before: float, *, within_seconds: float = math.inf) -> Comparison:
        """Compare all orders that were created, charged or shipped after `since`, are stuck, or had mismatches before.

        Records newer than `due_before` needn't have a counterpart yet, unless they are dated in the future. After
        `within_seconds`, stop; the result is then incomplete.
        """
        found, now = Comparison(), time.time() + CLOCK_SKEW_SECONDS
        deadline, reached = time.monotonic() + within_seconds, since
        earlier = await self.open_mismatches()
        async for orders in self._batches(since, earlier):
            reached = max([reached, *(order.recorded_at for order in orders.values() if order)])
            batch, complete_since = await self.read(orders)
            found.mails_are_read &= complete_since[Kind.NOT_MAILED] < math.inf
            mismatches: list[Mismatch] = []
            for records in batch:
                found.add(records)
                opened = earlier.get(records.order_id, {})
                current = [*find_mismatches(records, complete_since, known=opened)]
                due = [one for one in current if one.is_due(due_before, now)]
                mismatches += [one for one in due if one.kind not in opened or not opened[one.kind].accepted]
                unread = frozenset() if found.mails_are_read else MAIL_KINDS
                # Whether a mismatch is due or not, its records don't agree.
                found.agreed += _agreed(opened, records, unread | {one.kind for one in current})
            # Drop mismatches of orders that have since changed: some records may have been read before the change.
            again, _ = await self.find({mismatch.order_id for mismatch in mismatches})
            found.mismatches += [one for one in mismatches if again[one.order_id] == orders[one.order_id]]
            if time.monotonic() >= deadline:
                found.hours_read = (reached - since) / 3600
                break
        found.mismatches.sort(key=lambda mismatch: (mismatch.since, mismatch.order_id))
        return found

    async def open_mismatches(self) -> OpenMismatches:
        """Return the mismatches that earlier comparisons have recorded."""
        found = await self.journal.ListMismatches(orders_pb2.ListMismatchesRequest())
        by_order: OpenMismatches = defaultdict(dict)
        for one in found.mismatches:
            by_order[one.order_id][one.kind] = one
        return by_order

    async def record(self, found: Comparison) -> None:
        """Record the oldest mismatches, so that later comparisons check these orders again, however old they are."""
        current = [
            orders_pb2.OpenMismatch(order_id=one.order_id, kind=one.kind, since=time_to_wire(max(one.since, 0.0)))
            for one in found.mismatches[:MAX_OPEN_MISMATCHES]
        ]
        await self.journal.RecordMismatches(orders_pb2.RecordMismatchesRequest(found=current, agreed=found.agreed))

    async def find(self, order_ids: Iterable[str]) -> tuple[Orders, float]:
        """Return up to 1,000 orders by id, and how far back the journal is complete."""
        found: Orders = dict.fromkeys(order_ids)
        reply = _whole(await self.journal.ScanOrders(orders_pb2.ScanOrdersRequest(order_ids=[*found] or [""])))
        found |= {order.order_id: _order_from_wire(order) for order in reply.orders}
        return found, _complete_since(reply.complete_since)

    async def read(self, orders: Orders) -> tuple[list[OrderRecords], CompleteSince]:
        """Return all records of up to 1,000 orders, and how far back each kind of record is complete."""
        ids = [*orders]
        charges = await self.ledger.ListCharges(payment_ledger_pb2.ListChargesRequest(order_ids=ids))
        shipments = await self.manifest.ListShipments(shipment_manifest_pb2.ListShipmentsRequest(order_ids=ids))
        confirmations, confirmations_since = await self._find_confirmations(ids)
        _, orders_since = await self.find(())
        effects = (
            _by_order(map(_charge_from_wire, _whole(charges).charges)),
            _by_order(map(_shipment_from_wire, _whole(shipments).shipments)),
            _by_order(confirmations),
        )
        records = [OrderRecords(id_, order, *(tuple(by[id_]) for by in effects)) for id_, order in orders.items()]
        return records, {
            Kind.UNKNOWN_ORDER: orders_since,
            Kind.CHARGED_NOT_SHIPPED: _complete_since(shipments.complete_since),
            Kind.NOT_MAILED: confirmations_since,
        }

    async def _batches(self, since: float, earlier: Iterable[str]) -> AsyncIterator[Orders]:
        """Yield all orders to compare, each only once, up to 1,000 at a time. Stuck and `earlier` orders come last."""

        async def older(ids: Iterable[str]) -> Orders:
            """Look up orders not looked up yet. Leave out any created after `since`, because the scan yields them."""
            new = {id_ for id_ in ids if id_ not in recent and id_ not in looked_up}
            found = (await self.find(new))[0] if new else {}
            found = {id_: order for id_, order in found.items() if order is None or order.recorded_at < since}
            looked_up.update(found)
            return found

        recent: dict[str, None] = {}
        looked_up: set[str] = set()
        lists: tuple[tuple[Any, Any, str, Callable[[Any], Record]], ...] = (
            (self.journal.ScanOrders, orders_pb2.ScanOrdersRequest, "orders", _order_from_wire),
            (self.ledger.ListCharges, payment_ledger_pb2.ListChargesRequest, "charges", _charge_from_wire),
            (self.manifest.ListShipments, shipment_manifest_pb2.ListShipmentsRequest, "shipments", _shipment_from_wire),
        )
        reached = {_pages(*source, since): since for source in lists}
        while reached:
            pages = min(reached, key=reached.__getitem__)  # continue with the list that is furthest behind
            if (page := await anext(pages, None)) is None:
                del reached[pages]
                continue
            reached[pages] = page[-1].recorded_at
            orders: Orders = {record.order_id: record for record in page if isinstance(record, RecordedOrder)}
            if batch := orders or await older(record.order_id for record in page):
                yield batch
            recent |= dict.fromkeys(record.order_id for record in page)
            for id_ in [*islice(recent, max(0, len(recent) - _RECENT))]:
                del recent[id_]
        stuck = await self.journal.ListOrders(orders_pb2.ListOrdersRequest(stuck=True, limit=_MAX_LISTED))
        last = [*(order.order_id for order in stuck.orders), *earlier]
        for start in range(0, len(last), _MAX_LISTED):
            if batch := await older(last[start : start + _MAX_LISTED]):
                yield batch

    async def _find_confirmations(self, order_ids: Sequence[str]) -> tuple[list[Effect], float]:
        """Return the orders' confirmations, and how far back the stored confirmations are complete."""
        if self.confirmations is None:
            return [], math.inf
        try:
            found = await self.confirmations.FindMails(mail_records_pb2.FindMailsRequest(order_ids=order_ids))
        except Unimplemented:
            return [], math.inf
        return [confirmation_from_wire(mail) for mail in found.mails], _complete_since(found.complete_since)


def _agreed(
    opened: Mapping[str, orders_pb2.OpenMismatch], records: OrderRecords, kinds: Collection[str]
) -> Iterable[orders_pb2.OpenMismatch]:
    """Return an order's recorded mismatches that no longer exist, except any that can't be checked now."""
    is_gone = records.order is None and not records.charges and not records.shipments
    is_judged = records.order is not None and not records.order.in_progress
    return [one for kind, one in opened.items() if is_gone or (is_judged and kind not in kinds)]


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
    call: Callable[[Any], Awaitable[Any]],
    request: Callable[..., Any],
    records: str,
    convert: Callable[[Any], Record],
    since: float,
) -> AsyncIterator[list[Record]]:
    """Yield the pages of a list. `records` is the name of the field that holds a page's records.

    In a live shop, records are added all the time, so stop after the first page that is shorter than an earlier page.
    Also stop if the page token repeats: a record without a valid time would otherwise be listed forever.
    """
    token, longest, page = "", 0, await call(request(since=time_to_wire(max(since, 0.0))))
    while page.next_page_token not in {"", token}:
        converted = [convert(record) for record in getattr(page, records)]
        yield converted
        if len(converted) < longest:
            return
        token, longest = page.next_page_token, len(converted)
        page = await call(request(page_token=token))


def _whole(reply: Any) -> Any:
    if reply.next_page_token:
        raise Unavailable("a service of an older release does not list records by order; upgrade it first")
    return reply


def _complete_since(at: Timestamp) -> float:
    """Convert a service's `complete_since` to seconds, adding a margin because other services' clocks may differ."""
    return _seconds(at) + CLOCK_SKEW_SECONDS


def _by_order(effects: Iterable[Effect]) -> Mapping[str, list[Effect]]:
    found: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        found[effect.order_id].append(effect)
    return found


def _charge_from_wire(charge: payment_ledger_pb2.CapturedCharge) -> Effect:
    amount, at = money_from_wire(charge.amount), _seconds(charge.recorded_at)
    label, is_readable = f"{amount} under {charge.charge_key}", charge.HasField("amount")
    return Effect(charge.charge_key, label, at, amount, is_readable=is_readable, digests=_digests(charge.digests))


def _shipment_from_wire(shipment: shipment_manifest_pb2.RecordedShipment) -> Effect:
    key, at, digests = shipment.shipment_key, _seconds(shipment.recorded_at), _digests(shipment.digests)
    return Effect(key, shipment.tracking_id, at, is_readable=bool(digests), digests=digests)


def _order_from_wire(order: orders_pb2.Order) -> RecordedOrder:
    state = orders_pb2.OrderState.Name(order.state).removeprefix("ORDER_STATE_")
    return RecordedOrder(
        order.order_id,
        state,
        order.attempt,
        money_from_wire(order.total),
        _seconds(order.created_at),
        _seconds(order.updated_at),
        settlement=order.settlement,
        in_progress=not order.stuck and state in {*OPEN, State.SHIPPED},
        is_readable=not order.unreadable,
        digests=_digests(order.digests),
    )


def confirmation_from_wire(mail: mail_records_pb2.Mail) -> Effect:
    state = mail_records_pb2.MailState.Name(mail.state).removeprefix("MAIL_STATE_")
    label, failed = f"{state.lower()} {mail.reason}".rstrip(), mail.state == mail_records_pb2.MAIL_STATE_FAILED
    is_readable = mail.state != mail_records_pb2.MAIL_STATE_UNSPECIFIED
    return Effect(mail.order_id, label, failed=failed, is_readable=is_readable, digests=_digests(mail.digests))


def _digests(digests: RecordDigests) -> Digests:
    return {field.name: value for field, value in digests.ListFields()}


def _seconds(at: Timestamp) -> float:
    return at.ToNanoseconds() / 1e9
