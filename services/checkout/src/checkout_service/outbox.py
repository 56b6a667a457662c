"""Sends the confirmation of a placed order and empties its cart: at once if possible, otherwise later."""

import asyncio
from collections import deque
from contextlib import suppress

import structlog

from chassis.errors import REFUSALS, DomainError
from chassis.failpoints import Failpoints
from checkout_service.background import log_unexpected_errors, retry_delay_seconds
from checkout_service.domain import PlacedOrder, State
from checkout_service.failpoints import CART_EMPTIED, EMAIL_SENT, SETTLE
from checkout_service.metrics import OrderMetrics
from checkout_service.ports import (
    EMAIL,
    EMPTY_CART,
    CartClearer,
    Journal,
    JournalUnavailable,
    Mailer,
    OutboxItem,
    Sent,
)

log = structlog.get_logger()

SEND_NOW_SECONDS = 1.0
_TURN_SECONDS = 1.0
_SETTLE_SECONDS = 0.25
_SETTLE_WITHIN_SECONDS = 6.0
_CLOSE_WITHIN_SECONDS = 5.0
_MAX_CLAIMED = 16
_BATCH = 100


class Outbox:
    """Sends outbox items, and settles sent ones in batches. After a crash in between they are sent again.

    A repeated item has no second effect: the e-mail has the same id, and the cart the same etag.
    """

    def __init__(
        self, journal: Journal, mailer: Mailer, cart_clearer: CartClearer, metrics: OrderMetrics, failpoints: Failpoints
    ) -> None:
        self._journal = journal
        self._mailer = mailer
        self._cart_clearer = cart_clearer
        self._metrics = metrics
        self._failpoints = failpoints
        self._sent: deque[Sent] = deque()

    async def send_now(self, placed: PlacedOrder) -> None:
        """Try both items in parallel for SEND_NOW_SECONDS. A failed item remains in the outbox."""
        order_id = placed.order.order_id
        try:
            async with asyncio.timeout(SEND_NOW_SECONDS):
                results = await asyncio.gather(
                    self._send(EMAIL, placed), self._send(EMPTY_CART, placed), return_exceptions=True
                )
        except TimeoutError:
            log.warning("left in the outbox", order_id=order_id, reason="TIMEOUT")
            return
        for failure in filter(None, results):
            if not isinstance(failure, DomainError):
                raise failure
            log.warning("left in the outbox", order_id=order_id, reason=failure.reason)

    async def run(self) -> None:
        """Send items that are due and settle sent ones, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._settle_periodically(), name="settle the outbox")
            while True:
                try:
                    for item in await self._journal.claim_outbox(_MAX_CLAIMED):
                        tasks.create_task(self._retry(item), name=f"outbox {item.placed.order.order_id}")
                except JournalUnavailable:
                    log.warning("the outbox cannot be read")
                await asyncio.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """Settle the items sent last. If that fails, they are sent again, without a second effect."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_SECONDS):
                await log_unexpected_errors(self.settle(), "settling the outbox failed")

    async def settle(self) -> None:
        """Record sent items as finished. If the journal is unavailable, they are settled next time."""
        while self._sent:
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

    async def _settle_periodically(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_SECONDS)
            await log_unexpected_errors(self._settle_with_timeout(), "settling the outbox failed")

    async def _settle_with_timeout(self) -> None:
        # A settlement that hangs must not block the ones after it; its items are sent again.
        async with asyncio.timeout(_SETTLE_WITHIN_SECONDS):
            await self.settle()

    async def _send(self, kind: str, placed: PlacedOrder) -> None:
        """Send one item; drop it if the peer refuses it for good. Raises any other DomainError of the peer."""
        order = placed.order
        step, failpoint = ("email_sent", EMAIL_SENT) if kind == EMAIL else ("cart_emptied", CART_EMPTIED)
        try:
            if kind == EMAIL:
                await self._mailer.confirm(placed)
            else:
                await self._cart_clearer.remove_ordered(placed)
        except REFUSALS as error:
            log.error("dropped from the outbox", order_id=order.order_id, kind=kind, reason=error.reason)  # noqa: TRY400
            step = "email_refused" if kind == EMAIL else "cart_refused"
        await self._failpoints.reach(failpoint)
        self._sent.append(Sent(order.order_id, kind, step))

    async def _retry(self, item: OutboxItem) -> None:
        await log_unexpected_errors(self._send_or_postpone(item), "sending an outbox item failed")

    async def _send_or_postpone(self, item: OutboxItem) -> None:
        try:
            await self._send(item.kind, item.placed)
        except JournalUnavailable:
            raise
        except DomainError as error:
            delay, order_id = retry_delay_seconds(item.failures), item.placed.order.order_id
            log.warning("outbox item postponed", order_id=order_id, kind=item.kind, reason=error.reason, seconds=delay)
            await self._journal.postpone(item, delay_seconds=delay, reason=error.reason)
