"""Compares the running shop's orders, charges, shipments and confirmations, using checkout's rules."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from chassis.errors import DomainError
from chassis.rpc import client
from checkout_service.reconciliation.reader import Comparison, Reader, open_reader
from shop_cli.local.processes import Shop

WINDOW_SECONDS = 15 * 60
# Newer records needn't match yet: a crashed worker's order is taken over only after 15 s, or later during faults.
GRACE_SECONDS = 60
_CALL_SECONDS = 2.0
_FRESH_SECONDS = 2.0
# The parent span of reconciliation's calls. It isn't sampled, so that traces of these calls don't crowd out all others.
_UNSAMPLED = NonRecordingSpan(SpanContext(trace_id=1, span_id=1, is_remote=False))


@dataclass(frozen=True)
class Reconciliation:
    """The result of comparing the last 15 minutes' records. `unread` says why they can't be read; "" if they can."""

    found: Comparison = field(default_factory=Comparison)
    unread: str = ""

    @property
    def verdict(self) -> str:
        """The result in one word: `unread`, `violated`, `settling` or `holds`."""
        if self.unread:
            return "unread"
        return "violated" if self.found.mismatches else "settling" if self.found.in_progress else "holds"


class Reconciler:
    """Reads and compares records on request, at most once every two seconds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._latest = Reconciliation(unread="not read yet")
        self._fresh_until = 0.0
        self._lock = asyncio.Lock()

    async def read(self) -> Reconciliation:
        """Return the latest result. If it is too old, compare the records again first."""
        async with self._lock:
            started = time.monotonic()
            if started > self._fresh_until:
                self._latest = await self._compare(time.time())
                # Pause longer after a slow comparison, so that an open page doesn't keep the services busy.
                ended = time.monotonic()
                self._fresh_until = ended + _FRESH_SECONDS + 10 * (ended - started)
        return self._latest

    async def charges_of(self, order_id: str) -> int:
        """Return how many captured charges an order has. Raise a DomainError if the records cannot be read."""
        with trace.use_span(_UNSAMPLED):
            ((records,), _) = await self._reader.read({order_id: None})
        return len(records.charges)

    async def _compare(self, now: float) -> Reconciliation:
        try:
            with trace.use_span(_UNSAMPLED):
                found = await self._reader.compare(now - WINDOW_SECONDS, now - GRACE_SECONDS)
        except DomainError as error:
            if error.reason in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):  # gRPC's own messages are too technical
                return Reconciliation(unread="checkout, payment, shipping and email do not all answer")
            return Reconciliation(unread=f"{error.reason}: {error.message}")
        return Reconciliation(found)


@asynccontextmanager
async def open_reconciler(shop: Shop) -> AsyncIterator[Reconciler]:

    def channel(name: str, service: str, _method: str) -> grpc.aio.Channel:
        process = shop[name]
        return client.channel(
            process.internal_address, service, timeout_seconds=_CALL_SECONDS, certificates=process.certificates
        )

    async with open_reader(channel) as reader:
        yield Reconciler(reader)
