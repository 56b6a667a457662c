"""Sends placed orders' confirmations and removes ordered items from carts, at once if possible, otherwise later."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog
from opentelemetry.context import Context
from opentelemetry.trace import StatusCode

from chassis.background import log_errors, mark_retrieved
from chassis.errors import REFUSALS, DomainError, Unimplemented
from chassis.failpoints import Failpoints
from chassis.rpc.status import recorded_reason
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.domain import State
from checkout_service.failpoints import CART_EMPTIED, COMPLETE, EMAIL_SENT
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.order_spans import links_to
from checkout_service.ports import EMAIL, EMPTY_CART, OUTBOX_KINDS, Entry, JournalUnavailable, OutboxItem, Sender
from checkout_service.queue_workers import CircuitBreaker, PollTimer, circuits_of, retry_delay_seconds, run_workers

log = structlog.get_logger()

# How long a response may wait for the ordered items to be removed from the cart.
SEND_NOW_SECONDS = 1.0

# How long the worker that placed an order tries to send the confirmation. The worker must stop before
# OUTBOX_LEASE_SECONDS have passed, because from then on, other workers may send the confirmation.
SEND_EMAIL_SECONDS = 4.0

# An item becomes a dead letter after this many failures, which takes about eight hours.
MAX_FAILURES = 100

# How long to collect sent items before deleting them from the journal as a batch.
_COMPLETE_SECONDS = 0.25
_COMPLETE_WITHIN_SECONDS = 6.0
# One transaction deletes at most this many items. Other orders' commits wait for it, so it must be short.
_BATCH = 20
_NOT_COMPLETED = "sent items cannot be completed"

# The email service accepted the confirmation earlier, but the mail relay refused it. Sending it again has no effect.
_ACCEPTED_BEFORE = "RECIPIENT_REFUSED"

_CLOSE_WITHIN_SECONDS = 5.0


@dataclass(eq=False)
class Outbox:
    """Sends outbox items, then completes them in batches: deletes the items and marks finished orders DONE.

    After a crash, sent items that are still in the journal are sent again, which has no further effect: see
    `ports.Sender`. An item becomes a dead letter if its peer refuses the item permanently, or after too many failures.
    Failures while a peer is down do not count. `senders` maps each item kind to the function that sends it.
    """

    journal: Journal
    senders: Mapping[str, Sender]
    poll_timer: PollTimer
    metrics: OrderMetrics
    telemetry: Telemetry
    failpoints: Failpoints
    _sent: deque[OutboxItem] = field(default_factory=deque, init=False)
    _has_sent: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _sending: set[asyncio.Future[None]] = field(default_factory=set, init=False)
    _circuits: dict[str, dict[bool, CircuitBreaker]] = field(
        default_factory=lambda: {kind: circuits_of(kind) for kind in OUTBOX_KINDS}, init=False
    )

    def start_removal(self, entry: Entry) -> asyncio.Future[None]:
        """Start removing a shipped order's items from its cart. `send_now` waits for the returned future."""
        removal = self.senders[EMPTY_CART](entry)
        # If the order cannot be recorded as shipped, nothing awaits this future, and asyncio would log its error.
        removal.add_done_callback(mark_retrieved)
        self._sending.add(removal)
        removal.add_done_callback(self._sending.discard)
        return removal

    async def send_now(self, entry: Entry, removal: asyncio.Future[None]) -> None:
        """Start sending the confirmation, and wait until the cart is updated. Items that fail stay in the outbox."""
        # Don't make the caller wait for the confirmation: it stays in the outbox until it is sent.
        confirmation, item = self.senders[EMAIL](entry), OutboxItem(EMAIL, entry)
        sending = asyncio.create_task(self._try_once(item, confirmation, SEND_EMAIL_SECONDS))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        await self._try_once(OutboxItem(EMPTY_CART, entry), removal, SEND_NOW_SECONDS)

    async def run(self) -> None:
        """Send due items and complete sent items, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._complete_periodically(), name="complete sent items")
            await run_workers(self.poll_timer, self._circuits, self.journal.claim_outbox, self._send_or_postpone)

    async def close(self) -> None:
        """Wait for items being sent, then complete them. Items that take too long are sent again, which is harmless."""
        with suppress(TimeoutError):
            # A pod's grace period must cover this timeout plus closing the executor, which may take 7 s.
            async with asyncio.timeout(_CLOSE_WITHIN_SECONDS):
                await asyncio.gather(*self._sending, return_exceptions=True)
                await log_errors(self.complete(), _NOT_COMPLETED)

    async def complete(self) -> None:
        """Delete the items sent so far, in batches, and mark orders that have no items left as DONE.

        Raise JournalUnavailable if the journal can't be written.
        """
        for _ in range(0, len(self._sent), _BATCH):
            batch = [self._sent.popleft() for _ in range(min(len(self._sent), _BATCH))]
            try:
                await self.failpoints.reach(COMPLETE[0])
                done = await self.journal.complete(batch)
                await self.failpoints.reach(COMPLETE[1])
            except JournalUnavailable:
                self._sent.extendleft(batch)  # keep the batch, or its items would be sent again
                raise
            for order_id in done:
                self.metrics.record_change(order_id, State.DONE)
        if not self._sent:
            self._has_sent.clear()

    async def _complete_periodically(self) -> None:
        while True:
            await self._has_sent.wait()
            await asyncio.sleep(_COMPLETE_SECONDS)
            # Give up on a transaction that hangs, so that it doesn't block later ones. Its items will be sent again.
            await log_errors(self.complete(), _NOT_COMPLETED, within_seconds=_COMPLETE_WITHIN_SECONDS)

    async def _try_once(self, item: OutboxItem, sending: Awaitable[None], within_seconds: float) -> None:
        """Finish sending a new order's item, even if the circuit is open. If that fails, keep it in the outbox."""
        kind, order_id = item.kind, item.entry.order_id
        try:
            async with asyncio.timeout(within_seconds):
                await self._finish(item, sending)
        except TimeoutError:
            log.warning("left in the outbox", order_id=order_id, kind=kind, reason="TIMEOUT")
        except DomainError as error:
            if not isinstance(error, JournalUnavailable):
                self._circuits[kind][False].record_failure()
            log.warning("left in the outbox", order_id=order_id, kind=kind, reason=error.reason)
        except Exception:
            log.exception("left in the outbox", order_id=order_id, kind=kind)
        else:
            self._circuits[kind][False].record_success()

    async def _send_or_postpone(self, item: OutboxItem, circuit: CircuitBreaker) -> bool:
        """Send a claimed item, or postpone the item if sending fails. Return whether its peer appears to be up."""
        # Check this before sending, because the item may crash every worker that tries to send it.
        if item.failures > MAX_FAILURES:
            await self._set_dead(item, "TOO_MANY_FAILURES")
            return True
        try:
            await self._send_later(item)
        except JournalUnavailable:
            raise
        except DomainError as error:
            # Don't count failures during an outage, so that outages create no dead letters, however long they last.
            failures = item.failures - 1 if circuit.open else item.failures
            delay = retry_delay_seconds(failures)
            order_id, reason = item.entry.order_id, error.reason
            log.warning("outbox item postponed", order_id=order_id, kind=item.kind, reason=reason, seconds=delay)
            await self.journal.postpone(replace(item, failures=failures), delay_seconds=delay, reason=reason)
            return False
        return True

    async def _send_later(self, item: OutboxItem) -> None:
        """Send a claimed item in a new trace that links to the order's trace."""
        attributes: dict[str, str | int] = {
            semconv.ORDER_ID: item.entry.order_id,
            semconv.NOTIFICATION_KIND: item.kind,
            semconv.NOTIFICATION_FAILURES: item.failures - 1,
        }
        links = links_to(item.entry.traceparent)  # don't continue the order's trace, which may have ended hours ago
        with self.telemetry.tracer.start_as_current_span(
            "send notification",
            Context(),
            links=links,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._finish(item, self.senders[item.kind](item.entry))
            except DomainError as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
                raise

    async def _finish(self, item: OutboxItem, sending: Awaitable[None]) -> None:
        """Wait until an item is sent. If the peer refuses it permanently, make it a dead letter. Raise other errors."""
        try:
            await sending
        except Unimplemented:  # this may not come from the peer: a proxy without a route also returns UNIMPLEMENTED
            raise
        except REFUSALS as error:
            if error.reason != _ACCEPTED_BEFORE:
                await self._set_dead(item, error.reason)
                return
        await self.failpoints.reach(EMAIL_SENT if item.kind == EMAIL else CART_EMPTIED)
        self._sent.append(item)
        self._has_sent.set()

    async def _set_dead(self, item: OutboxItem, reason: str) -> None:
        log.error("dead letter", order_id=item.entry.order_id, kind=item.kind, reason=reason)
        await self.journal.set_dead(item.entry.order_id, item.kind, reason=reason)
