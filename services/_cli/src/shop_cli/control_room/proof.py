"""Compares orders, charges, shipments and e-mails while the shop runs, with the rules of reconciliation."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from chassis import client
from chassis.errors import DomainError
from checkout_service.reconciliation.reader import Reader, Records
from checkout_service.reconciliation.rules import Mismatch, find_mismatches
from shop_cli.local.processes import Shop
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub

WINDOW_SECONDS = 15 * 60
# An order whose worker has died is taken over after 15 s; frozen services delay it further.
GRACE_SECONDS = 60
_CALL_SECONDS = 2.0
_FRESH_SECONDS = 2.0
# The parent of this module's own calls: not sampled, because a watched page would soon replace all stored traces.
_UNSAMPLED = NonRecordingSpan(SpanContext(trace_id=1, span_id=1, is_remote=False))


@dataclass(frozen=True)
class Proof:
    """The records of the last quarter of an hour, compared.

    Attributes:
        settling: orders whose records disagree because a step may still follow.
        mismatches: what disagrees although no step may be missing any more.
        unread: why the records could not be read, "" if they were.
    """

    orders: int = 0
    charges: int = 0
    shipments: int = 0
    mails: int = 0
    settling: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    unread: str = ""

    @property
    def verdict(self) -> str:
        """`unread`, `violated`, `settling` or `holds`."""
        if self.unread:
            return "unread"
        return "violated" if self.mismatches else "settling" if self.settling else "holds"


class Prover:
    """Reads and compares the records of a shop on request, at most once every two seconds. Used as a context."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._stack = AsyncExitStack()
        self._reader: Reader | None = None
        self._proof = Proof(unread="not read yet")
        self._read_at = 0.0
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> "Prover":
        self._reader = Reader(
            self._stub(OrderJournalStub, "checkout", "OrderJournal"),
            self._stub(PaymentLedgerStub, "payment", "PaymentLedger"),
            self._stub(ShipmentManifestStub, "shipping", "ShipmentManifest"),
            self._stub(MailRecordsStub, "email", "MailRecords"),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def read(self) -> Proof:
        """Return the comparison of records that are at most two seconds old."""
        async with self._lock:
            started = time.monotonic()
            if started - self._read_at > _FRESH_SECONDS:
                self._proof = await self._compare()
                # With many orders it takes longer, and a watched page must not occupy the services.
                self._read_at = time.monotonic() + 10 * (time.monotonic() - started)
        return self._proof

    async def charges_of(self, order_id: str) -> int:
        """Return how many captured charges an order has. Raise a DomainError if payment does not respond."""
        assert self._reader is not None  # noqa: S101 - used as a context
        with trace.use_span(_UNSAMPLED):
            records = await self._reader.read(time.time() - WINDOW_SECONDS)
        return sum(len(each.charges) for each in records.orders if each.order_id == order_id)

    async def _compare(self) -> Proof:
        assert self._reader is not None  # noqa: S101 - used as a context
        now = time.time()
        try:
            with trace.use_span(_UNSAMPLED):
                return _judge(await self._reader.read(now - WINDOW_SECONDS), now)
        except DomainError as error:
            return Proof(unread=f"{error.reason}: {error.message}")

    def _stub(self, stub: Any, name: str, service: str) -> Any:
        address = self._shop[name].internal_address
        channel = client.channel(address, f"shop.internal.{service}", timeout_seconds=_CALL_SECONDS)
        self._stack.push_async_callback(channel.close)
        return stub(channel)


def _judge(records: Records, now: float) -> Proof:
    found = _mismatches(records, now)
    settled = tuple(each for each in found if each.since < now - GRACE_SECONDS)
    settling = {each.order_id for each in found} - {each.order_id for each in settled}
    mails = sum(each.mail is not None and not each.mail.failed for each in records.orders)
    orders = sum(each.order is not None for each in records.orders)
    return Proof(orders, records.charges, records.shipments, mails, len(settling), settled)


def _mismatches(records: Records, now: float) -> Sequence[Mismatch]:
    return [
        mismatch
        for each in records.orders
        for mismatch in find_mismatches(
            each,
            settled_before=now + 1,
            mails_are_read=records.mails_are_read,
            complete_since=records.complete_since,
        )
    ]
