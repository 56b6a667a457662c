"""Compares the running shop's orders, charges, shipments and confirmations, using checkout's rules."""

import asyncio
import time
from dataclasses import asdict
from typing import Any

import grpc
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from chassis.errors import DomainError
from chassis.rpc import client
from checkout_service.reconciliation.reader import Comparison, Reader
from shop_cli.local.processes import Shop

WINDOW_SECONDS = 15 * 60
# Newer records needn't match yet: a crashed worker's order is taken over only after 15 s, or later during faults.
GRACE_SECONDS = 60
_CALL_SECONDS = 2.0
_FRESH_SECONDS = 2.0
# The parent span of reconciliation's calls. It isn't sampled, so that traces of these calls don't crowd out all others.
_UNSAMPLED = NonRecordingSpan(SpanContext(trace_id=1, span_id=1, is_remote=False))


class Reconciler:
    """Reads and compares records on request, at most once every two seconds."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._latest: dict[str, Any] = {}
        self._fresh_until = 0.0
        self._lock = asyncio.Lock()

    async def read(self) -> dict[str, Any]:
        """Return how the last 15 minutes' records compare, from at most a few seconds ago.

        The result has the totals and mismatches of a Comparison, a `verdict` (`unread`, `violated`, `settling` or
        `holds`), and in `unread` why the records can't be read; "" if they can.
        """
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

    async def _compare(self, now: float) -> dict[str, Any]:
        found, unread = Comparison(), ""
        try:
            with trace.use_span(_UNSAMPLED):
                found = await self._reader.compare(now - WINDOW_SECONDS, now - GRACE_SECONDS)
        except DomainError as error:
            unread = f"{error.reason}: {error.message}"
            if error.reason in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):  # gRPC's own messages are too technical
                unread = "checkout, payment, shipping and email do not all answer"
        verdict = "violated" if found.mismatches else "settling" if found.in_progress else "holds"
        found.agreed = []  # protobuf messages, which JSON can't represent
        return {**asdict(found), "unread": unread, "verdict": "unread" if unread else verdict}


def open_channel(shop: Shop, name: str, service: str, _method: str) -> grpc.aio.Channel:
    """Open a channel to a running service, as `open_reader` requires."""
    process = shop[name]
    target, certificates = process.internal_address, process.certificates
    return client.channel(target, service, timeout_seconds=_CALL_SECONDS, certificates=certificates)
