"""Sends the confirmation of a placed order and empties its cart: at once if possible, otherwise later."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog
from opentelemetry.context import Context
from opentelemetry.trace import StatusCode

from chassis.errors import REFUSALS, DomainError, Unimplemented
from chassis.failpoints import Failpoints
from chassis.rpc.status import recorded_reason
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from checkout_service.background import Circuits, QueueWorker, Turns, log_unexpected_errors, retry_delay_seconds
from checkout_service.domain import PlacedOrder, State
from checkout_service.failpoints import CART_EMPTIED, EMAIL_SENT, SETTLE
from checkout_service.metrics import OrderMetrics
from checkout_service.order_spans import links_to
from checkout_service.ports import (
    EMAIL,
    EMPTY_CART,
    NOTIFICATIONS,
    CartClearer,
    Journal,
    JournalUnavailable,
    Mailer,
    OutboxItem,
    Sent,
)

log = structlog.get_logger()

SEND_NOW_SECONDS = 1.0
"""How long the response to a caller waits for the cart."""

SEND_EMAIL_SECONDS = 4.0
"""How long the worker that placed an order tries to send its confirmation: other workers try after 5 s."""

MAX_FAILURES = 100
"""An item that fails this often is a dead letter: after about eight hours."""

# Of the event loop, in which two tasks begin one after the other: of the removal's batch and of gRPC's call. The record
# of the shipment takes the event loop until it is on disk: the cart would get a call that is not sent only then.
_TURNS_UNTIL_SENT = 2

_SETTLE_SECONDS = 0.25
"""How long a sent item waits to be settled, unless there is a batch before."""

_SETTLE_WITHIN_SECONDS = 6.0
_CLOSE_WITHIN_SECONDS = 5.0
_BATCH = 20
"""How many items are settled in one commit: no order waits longer than the commit of these."""


class Outbox:
    """Sends outbox items, and settles sent ones in batches. After a crash in between they are sent again.

    A repeated item has no second effect: the e-mail has the same id, and the cart the same etag. An item that is
    refused for good, or fails too often, becomes a dead letter. While a peer fails every time, its items wait, and none
    of these failures counts.
    """

    def __init__(
        self,
        journal: Journal,
        mailer: Mailer,
        cart_clearer: CartClearer,
        turns: Turns,
        *,
        metrics: OrderMetrics,
        telemetry: Telemetry,
        failpoints: Failpoints,
    ) -> None:
        self._journal = journal
        self._mailer = mailer
        self._cart_clearer = cart_clearer
        self._metrics = metrics
        self._tracer = telemetry.tracer
        self._failpoints = failpoints
        self._sent: deque[Sent] = deque()
        self._unsettled = asyncio.Event()
        self._batch_complete = asyncio.Event()
        self._sending: set[asyncio.Future[None]] = set()
        self._circuits = {kind: Circuits(kind) for kind in NOTIFICATIONS}
        self._workers = [
            QueueWorker(
                turns, circuits, failed, partial(journal.claim_outbox, kind, failed=failed), self._send_or_postpone
            )
            for kind, circuits in self._circuits.items()
            for failed in (False, True)
        ]

    async def begin_removal(self, placed: PlacedOrder) -> asyncio.Future[None]:
        """Begin to remove the items of a shipped order from its cart, for `send_now`.

        Returns once the call is sent, or waits for the one in progress.
        """
        removal = self._track(asyncio.ensure_future(self._deliver(EMPTY_CART, placed)))
        # If the order cannot be recorded as shipped, nobody awaits it: the next worker repeats it.
        removal.add_done_callback(lambda done: done.cancelled() or done.exception())
        for _ in range(_TURNS_UNTIL_SENT):
            await asyncio.sleep(0)
        return removal

    async def send_now(self, placed: PlacedOrder, removal: asyncio.Future[None]) -> None:
        """Wait for the removal, and begin to send the order's confirmation. A failed item remains here."""
        email = self._deliver(EMAIL, placed)
        self._track(asyncio.create_task(self._try_once(EMAIL, placed, email, SEND_EMAIL_SECONDS)))
        await self._try_once(EMPTY_CART, placed, removal, SEND_NOW_SECONDS)

    def _track(self, sending: asyncio.Future[None]) -> asyncio.Future[None]:
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return sending

    async def run(self) -> None:
        """Send items that are due and settle sent ones, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._settle_periodically(), name="settle the outbox")
            for worker in self._workers:
                tasks.create_task(worker.run())

    async def close(self) -> None:
        """Settle the items sent last. If that fails, they are sent again, without a second effect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_SECONDS):
                await asyncio.gather(*self._sending, return_exceptions=True)
                await log_unexpected_errors(self.settle(), "settling the outbox failed")

    async def settle(self, at_least: int = 1) -> None:
        """Record sent items as finished while there are so many. If the journal is unavailable, they remain."""
        while len(self._sent) >= at_least:
            batch = [self._sent.popleft() for _ in range(min(len(self._sent), _BATCH))]
            try:
                await self._failpoints.reach(SETTLE[0])
                done = await self._journal.settle(batch)
                await self._failpoints.reach(SETTLE[1])
            except JournalUnavailable:
                self._sent.extendleft(batch)
                log.warning("the outbox cannot be settled")
                return
            for order_id in done:
                self._metrics.record_change(order_id, State.DONE)
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
            await log_unexpected_errors(self._settle_with_timeout(at_least), "settling the outbox failed")

    async def _settle_with_timeout(self, at_least: int) -> None:
        # A settlement that hangs must not block the ones after it; its items are sent again.
        try:
            async with asyncio.timeout(_SETTLE_WITHIN_SECONDS):
                await self.settle(at_least)
        except TimeoutError:
            log.warning("settling the outbox takes too long")

    async def _try_once(self, kind: str, placed: PlacedOrder, delivery: Awaitable[None], within_seconds: float) -> None:
        """Finish an item of a new order, even while the circuit is open. If that fails, it remains in the outbox."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._finish(kind, placed, delivery)
        except TimeoutError:
            self._leave(kind, placed, "TIMEOUT")
        except DomainError as error:
            self._leave(kind, placed, error.reason)
            if not isinstance(error, JournalUnavailable):
                self._circuits[kind].record_failure(failed=False)
        except Exception:
            log.exception("left in the outbox", order_id=placed.order.order_id, kind=kind)
        else:
            self._circuits[kind].record_success(failed=False)

    @staticmethod
    def _leave(kind: str, placed: PlacedOrder, reason: str) -> None:
        log.warning("left in the outbox", order_id=placed.order.order_id, kind=kind, reason=reason)

    async def _send_or_postpone(self, item: OutboxItem) -> bool:
        """Send a claimed item, or make it due later. Return False if its peer failed."""
        order_id = item.placed.order.order_id
        if item.failures > MAX_FAILURES:
            await self._set_dead(order_id, item.kind, "TOO_MANY_FAILURES")
            return True
        try:
            await self._send_later(item)
        except JournalUnavailable:
            raise
        except DomainError as error:
            circuit = self._circuits[item.kind].of(failed=item.failures > 1)
            failures = item.failures - 1 if circuit.open else item.failures
            delay = retry_delay_seconds(failures)
            log.warning("outbox item postponed", order_id=order_id, kind=item.kind, reason=error.reason, seconds=delay)
            counted = replace(item, failures=failures)
            await self._journal.postpone(counted, delay_seconds=delay, reason=error.reason)
            return False
        return True

    async def _send_later(self, item: OutboxItem) -> None:
        """Send a claimed item in a trace of its own, which links to that of its order."""
        attributes: dict[str, str | int] = {
            semconv.ORDER_ID: item.placed.order.order_id,
            semconv.NOTIFICATION_KIND: item.kind,
            semconv.NOTIFICATION_FAILURES: item.failures - 1,
        }
        links = links_to(item.traceparent)
        with self._tracer.start_as_current_span(
            "send notification",
            Context(),
            links=links,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self._finish(item.kind, item.placed, self._deliver(item.kind, item.placed))
            except DomainError as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute(semconv.ERROR_REASON, recorded_reason(error))
                raise

    def _deliver(self, kind: str, placed: PlacedOrder) -> Awaitable[None]:
        """Begin to send one item to its peer. What it returns raises DomainError."""
        if kind == EMAIL:
            return self._mailer.confirm(placed)
        return self._cart_clearer.remove_ordered(placed)

    async def _finish(self, kind: str, placed: PlacedOrder, delivery: Awaitable[None]) -> None:
        """Await the delivery of an item, which is a dead letter if its peer refuses it for good.

        Raises any other DomainError.
        """
        try:
            await delivery
        except Unimplemented:  # perhaps from a proxy without a route, so it decides nothing
            raise
        except REFUSALS as error:
            await self._set_dead(placed.order.order_id, kind, error.reason)
            return
        step, failpoint = ("email_sent", EMAIL_SENT) if kind == EMAIL else ("cart_emptied", CART_EMPTIED)
        await self._failpoints.reach(failpoint)
        self._sent.append(Sent(placed.order.order_id, kind, step))
        self._unsettled.set()
        if len(self._sent) == _BATCH:  # while the journal is unavailable, further items do not hasten the next try
            self._batch_complete.set()

    async def _set_dead(self, order_id: str, kind: str, reason: str) -> None:
        log.error("dead letter", order_id=order_id, kind=kind, reason=reason)
        await self._journal.set_dead(order_id, kind, reason=reason)
