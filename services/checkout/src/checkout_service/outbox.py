"""What is sent after an order is placed: its e-mail, and the emptying of its cart. At once if possible, else later."""

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from chassis.errors import REFUSALS, DomainError
from chassis.failpoints import Failpoints
from checkout_service import failpoints as points
from checkout_service.clients import CartEmptier, Mailer
from checkout_service.domain import State
from checkout_service.journal import EMAIL, EMPTY_CART, Entry, Journal, JournalUnavailable, OutboxItem, Sent
from checkout_service.watch import Watch

log = structlog.get_logger()

SEND_NOW_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0
_TURN_SECONDS = 1.0
_SETTLE_SECONDS = 0.25
_SETTLE_WITHIN_SECONDS = 6.0
_CLOSE_WITHIN_SECONDS = 5.0
_AT_ONCE = 16
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is needed to mail an order and to empty its cart; `answer` is the stored response."""

    order_id: str
    user_id: str
    email: str
    cart_etag: str
    answer: bytes


class Outbox:
    """Sends, and settles what was sent in batches: a crash in between sends again, under the same ids."""

    def __init__(
        self, journal: Journal, mailer: Mailer, emptier: CartEmptier, watch: Watch, failpoints: Failpoints
    ) -> None:
        self._journal = journal
        self._mailer = mailer
        self._emptier = emptier
        self._watch = watch
        self._failpoints = failpoints
        self._sent: deque[Sent] = deque()

    async def send_now(self, parcel: Parcel) -> None:
        """Try both for a second, in parallel; what fails stays in the outbox."""
        try:
            async with asyncio.timeout(SEND_NOW_SECONDS):
                results = await asyncio.gather(
                    self._send(EMAIL, parcel), self._send(EMPTY_CART, parcel), return_exceptions=True
                )
        except TimeoutError:
            log.warning("left in the outbox", order_id=parcel.order_id, reason="TIMEOUT")
            return
        for failure in filter(None, results):
            if not isinstance(failure, DomainError):
                raise failure
            log.warning("left in the outbox", order_id=parcel.order_id, reason=failure.reason)

    async def work(self) -> None:
        """Send what is due and settle what was sent, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._settle_for_ever(), name="settle the outbox")
            while True:
                try:
                    for item in await self._journal.claim_outbox(_AT_ONCE):
                        tasks.create_task(self._send_again(item), name=f"outbox {item.order.order_id}")
                except JournalUnavailable:
                    log.warning("the outbox can't be read")
                await asyncio.sleep(_TURN_SECONDS)

    async def close(self) -> None:
        """Settle what was sent last; whatever keeps that from happening, it is sent again under the same ids."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_SECONDS):
                await unless_broken(self.settle(), "settling the outbox failed")

    async def settle(self) -> None:
        """Write down what was sent. What can't be written now is kept for the next time."""
        while self._sent:
            batch = [self._sent.popleft() for _ in range(min(len(self._sent), _BATCH))]
            try:
                await self._failpoints.reach(points.SETTLE[0])
                done = await self._journal.settle(batch)
                await self._failpoints.reach(points.SETTLE[1])
            except JournalUnavailable:
                self._sent.extendleft(batch)
                log.warning("the outbox can't be settled")
                return
            for order_id in done:
                self._watch.changed(order_id, State.DONE)

    async def _settle_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_SETTLE_SECONDS)
            await unless_broken(self._settle_in_time(), "settling the outbox failed")

    async def _settle_in_time(self) -> None:
        """One that hangs must not keep up all that come after it: what it was to settle is sent again."""
        async with asyncio.timeout(_SETTLE_WITHIN_SECONDS):
            await self.settle()

    async def _send(self, kind: str, parcel: Parcel) -> None:
        """Raises the DomainError of a peer that may take it later; one that never will has it dropped."""
        step, point = ("email_sent", points.EMAIL_SENT) if kind == EMAIL else ("cart_emptied", points.CART_EMPTIED)
        try:
            if kind == EMAIL:
                await self._mailer.confirm(parcel.email, parcel.answer)
            else:
                await self._emptier.empty(parcel.user_id, parcel.cart_etag)
        except REFUSALS as error:
            log.error("dropped from the outbox", order_id=parcel.order_id, kind=kind, reason=error.reason)  # noqa: TRY400
            step = "email_refused" if kind == EMAIL else "cart_refused"
        await self._failpoints.reach(point)
        self._sent.append(Sent(parcel.order_id, kind, step))

    async def _send_again(self, item: OutboxItem) -> None:
        await unless_broken(self._try_again(item), "sending again failed")

    async def _try_again(self, item: OutboxItem) -> None:
        try:
            await self._send(item.kind, _parcel(item.order))
        except JournalUnavailable:
            raise
        except DomainError as error:
            pause = pause_seconds(item.failures)
            log.warning("postponed", order_id=item.order.order_id, kind=item.kind, reason=error.reason, seconds=pause)
            await self._journal.postpone(item, delay_seconds=pause, reason=error.reason)


def pause_seconds(failures: int) -> float:
    """How long to let rest what failed so often: twice as long each time, five minutes at most."""
    return min(2.0 ** min(failures, 10), LONGEST_PAUSE_SECONDS)


async def unless_broken(work: Awaitable[None], event: str) -> None:
    """Await one piece of a worker's work: whatever breaks in it is logged, and the worker goes on to the next."""
    try:
        await work
    except Exception:
        log.exception(event)


def _parcel(order: Entry) -> Parcel:
    if order.answer is None:
        raise AssertionError("an outbox item without an answer")
    return Parcel(order.order_id, order.user_id, order.email, order.cart_etag, order.answer)
