"""Sends confirmations of placed orders and removes their items from carts: at once if possible, otherwise later."""

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
from checkout_service.failpoints import CART_EMPTIED, EMAIL_SENT, SETTLE
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.order_spans import links_to
from checkout_service.ports import (
    EMAIL,
    EMPTY_CART,
    OUTBOX_KINDS,
    Entry,
    JournalUnavailable,
    OutboxItem,
    Sender,
    Sent,
)
from checkout_service.queue_workers import CircuitBreaker, PollTimer, circuits_of, retry_delay_seconds, workers

log = structlog.get_logger()

# How long the response may wait for the ordered items to be removed from the cart.
SEND_NOW_SECONDS = 1.0

# How long the worker that placed an order tries to send its confirmation. It must give up before OUTBOX_LEASE_SECONDS,
# when other workers may try.
SEND_EMAIL_SECONDS = 4.0

# An item becomes a dead letter after this many failures, which takes about eight hours.
MAX_FAILURES = 100

# How long a sent item waits for its batch to fill up before the batch is settled.
_SETTLE_SECONDS = 0.25

_SETTLE_WITHIN_SECONDS = 6.0
_CLOSE_WITHIN_SECONDS = 5.0
# How many items one transaction settles. Other orders' commits wait for the transaction, so keep it short.
_BATCH = 20


@dataclass(eq=False)
class Outbox:
    """Sends outbox items and settles sent items in batches. Items that a crash leaves unsettled are sent again.

    Sending an item again has no further effect: see `ports.Sender`. An item becomes a dead letter if its peer refuses
    it permanently or if it fails too often. While a peer is down, its items wait, and their failures do not count.

    Attributes:
        senders: the functions that send items, by kind of item.
    """

    journal: Journal
    senders: Mapping[str, Sender]
    poll_timer: PollTimer
    metrics: OrderMetrics
    telemetry: Telemetry
    failpoints: Failpoints
    _sent: deque[Sent] = field(default_factory=deque, init=False)
    _unsettled: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _batch_complete: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _sending: set[asyncio.Future[None]] = field(default_factory=set, init=False)
    _circuits: dict[str, dict[bool, CircuitBreaker]] = field(init=False)

    def __post_init__(self) -> None:
        self._circuits = {kind: circuits_of(kind) for kind in OUTBOX_KINDS}

    def start_removal(self, entry: Entry) -> asyncio.Future[None]:
        """Start removing a shipped order's items from its cart. `send_now` waits for the returned future."""
        removal = self.senders[EMPTY_CART](entry)
        # Nothing awaits the removal if recording the order as shipped fails: the next worker removes the items again.
        removal.add_done_callback(mark_retrieved)
        return self._track(removal)

    async def send_now(self, entry: Entry, removal: asyncio.Future[None]) -> None:
        """Start sending the confirmation, and wait for the cart removal. Whichever fails remains in the outbox."""
        # The caller need not wait for the confirmation: it is safe in the outbox.
        confirmation = self.senders[EMAIL](entry)
        self._track(asyncio.create_task(self._try_once(EMAIL, entry.order_id, confirmation, SEND_EMAIL_SECONDS)))
        await self._try_once(EMPTY_CART, entry.order_id, removal, SEND_NOW_SECONDS)

    def _track(self, sending: asyncio.Future[None]) -> asyncio.Future[None]:
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return sending

    async def run(self) -> None:
        """Send due items and settle sent items, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._settle_periodically(), name="settle the outbox")
            for worker in workers(self.poll_timer, self._circuits, self.journal.claim_outbox, self._send_or_postpone):
                tasks.create_task(worker.run())

    async def close(self) -> None:
        """Settle the remaining sent items. Items left unsettled are sent again, which has no further effect."""
        with suppress(TimeoutError):
            # A pod's grace period must cover this timeout plus closing the executor, which may take 7 s.
            async with asyncio.timeout(_CLOSE_WITHIN_SECONDS):
                await asyncio.gather(*self._sending, return_exceptions=True)
                await log_errors(self.settle(), "the outbox cannot be settled")

    async def settle(self, at_least: int = 1) -> None:
        """Settle sent items while at least `at_least` are left. If the journal is unavailable, keep them for later."""
        while len(self._sent) >= at_least:
            batch = [self._sent.popleft() for _ in range(min(len(self._sent), _BATCH))]
            try:
                await self.failpoints.reach(SETTLE[0])
                done = await self.journal.settle(batch)
                await self.failpoints.reach(SETTLE[1])
            except JournalUnavailable:  # keep the items to settle later: items that are never settled are sent again
                self._sent.extendleft(batch)
                log.warning("the outbox cannot be settled")
                return
            for order_id in done:
                self.metrics.record_change(order_id, State.DONE)
        if not self._sent:
            self._unsettled.clear()

    async def _settle_periodically(self) -> None:
        while True:
            await self._unsettled.wait()
            at_least = _BATCH
            try:
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._batch_complete.wait()
            except TimeoutError:
                at_least = 1
            self._batch_complete.clear()
            # A settlement that hangs must not block later settlements; its items are sent again.
            settling = asyncio.wait_for(self.settle(at_least), _SETTLE_WITHIN_SECONDS)
            await log_errors(settling, "the outbox cannot be settled")

    async def _try_once(self, kind: str, order_id: str, sending: Awaitable[None], within_seconds: float) -> None:
        """Finish sending a new order's item, even while the circuit is open; on failure, leave it in the outbox."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._finish(kind, order_id, sending)
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

    async def _send_or_postpone(self, item: OutboxItem) -> bool:
        """Send a claimed item, or postpone it if that fails. Return whether its peer seems to work."""
        order_id = item.entry.order_id
        # Check this before sending, because the item may kill every worker that sends it.
        if item.failures > MAX_FAILURES:
            await self._set_dead(order_id, item.kind, "TOO_MANY_FAILURES")
            return True
        try:
            await self._send_later(item)
        except JournalUnavailable:
            raise
        except DomainError as error:
            circuit = self._circuits[item.kind][item.failures > 1]
            # An outage says nothing about the item: however long it lasts, it creates no dead letters.
            failures = item.failures - 1 if circuit.open else item.failures
            delay = retry_delay_seconds(failures)
            log.warning("outbox item postponed", order_id=order_id, kind=item.kind, reason=error.reason, seconds=delay)
            counted = replace(item, failures=failures)
            await self.journal.postpone(counted, delay_seconds=delay, reason=error.reason)
            return False
        return True

    async def _send_later(self, item: OutboxItem) -> None:
        """Send a claimed item in a new trace that links to the order's trace."""
        attributes: dict[str, str | int] = {
            semconv.ORDER_ID: item.entry.order_id,
            semconv.NOTIFICATION_KIND: item.kind,
            semconv.NOTIFICATION_FAILURES: item.failures - 1,
        }
        links = links_to(item.entry.traceparent)  # the order's own trace may have ended hours ago
        with self.telemetry.tracer.start_as_current_span(
            "send notification",
            Context(),
            links=links,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._finish(item.kind, item.entry.order_id, self.senders[item.kind](item.entry))
            except DomainError as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
                raise

    async def _finish(self, kind: str, order_id: str, sending: Awaitable[None]) -> None:
        """Wait until an item is sent, or make it a dead letter if its peer refuses it permanently.

        Raise any other DomainError.
        """
        try:
            await sending
        except Unimplemented:  # not the peer's decision: a proxy without a route also returns UNIMPLEMENTED
            raise
        except REFUSALS as error:
            await self._set_dead(order_id, kind, error.reason)
            return
        await self.failpoints.reach(EMAIL_SENT if kind == EMAIL else CART_EMPTIED)
        self._sent.append(Sent(order_id, kind))
        self._unsettled.set()
        if len(self._sent) == _BATCH:  # >= would cause extra tries for each further item while the journal is down
            self._batch_complete.set()

    async def _set_dead(self, order_id: str, kind: str, reason: str) -> None:
        log.error("dead letter", order_id=order_id, kind=kind, reason=reason)
        await self.journal.set_dead(order_id, kind, reason=reason)
