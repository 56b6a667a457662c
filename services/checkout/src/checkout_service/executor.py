"""Performs the commands of sagas. Each saga runs in a task of its own, which outlives the call that started it."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog

from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from chassis.rpc import calls
from checkout_service import saga
from checkout_service.domain import RESTORABLE, Card, Order, PlacedOrder, State, Transition
from checkout_service.failpoints import COMMAND_FAILPOINTS, COMMAND_NAMES
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.ports import Claim, Journal, JournalUnavailable, NewOrder, Payment, Shipping
from checkout_service.saga import Command, Saga, SagaResult

log = structlog.get_logger()

RETRY_SHARE_OF_LEASE = 2 / 3
"""The part of its lease that a saga with a card spends on retries before it leaves its order to recovery."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CLOSE_WITHIN_SECONDS = 7.0


@dataclass(frozen=True, slots=True)
class Work:
    """An order that this worker holds.

    Attributes:
        fingerprint: of the request.
        claim: as it is when the work begins.
        card: None in recovery.
        new: to be recorded first; None if the order is in the journal already.
        retry_seconds: how long outcomes in doubt are retried.
        release_delay_seconds: how long an unfinished order waits for its next worker.
    """

    order: Order
    fingerprint: str
    claim: Claim
    card: Card | None = None
    new: NewOrder | None = None
    retry_seconds: float = 0.0
    release_delay_seconds: float = 0.0


class Run:
    """A running saga.

    Attributes:
        claim: advances with each attempt.
        placed: the order to answer with, as soon as it is recorded as shipped.
        removal: of its items from its cart, in progress from the moment of its shipment.
        recorded: the order is in the journal.
        task: raises DomainError only if the order is not in the journal.
    """

    def __init__(self, work: Work) -> None:
        self.claim = work.claim
        self.placed: PlacedOrder | None = None
        self.removal: asyncio.Future[None] | None = None
        self.recorded = work.new is None
        self.retry_until = asyncio.get_running_loop().time() + work.retry_seconds
        self.last_reason = ""
        self.task: asyncio.Task[SagaResult]


class Executor:
    """Runs sagas.

    Attributes:
        running: by order id.
    """

    def __init__(
        self,
        journal: Journal,
        payment: Payment,
        shipping: Shipping,
        outbox: Outbox,
        *,
        metrics: OrderMetrics,
        failpoints: Failpoints,
    ) -> None:
        self._journal = journal
        self._payment = payment
        self._shipping = shipping
        self._outbox = outbox
        self._metrics = metrics
        self._failpoints = failpoints
        self._closing = asyncio.Event()
        self.running: dict[str, Run] = {}

    def start(self, work: Work, steps: Saga) -> Run:
        """Start a saga in a task of its own."""
        run = Run(work)
        order_id = work.order.order_id
        run.task = asyncio.create_task(self._run(run, work, steps), name=f"order {order_id}")
        self.running[order_id] = run
        run.task.add_done_callback(lambda _: self._forget(order_id, run))
        return run

    async def close(self) -> None:
        """Wait for the running sagas to end; those that are backing off leave their orders to recovery."""
        self._closing.set()
        tasks = [run.task for run in self.running.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=_CLOSE_WITHIN_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _forget(self, order_id: str, run: Run) -> None:
        if self.running.get(order_id) is run:
            del self.running[order_id]
        if not run.task.cancelled():
            run.task.exception()  # mark it as retrieved: the caller may be gone

    async def _run(self, run: Run, work: Work, steps: Saga) -> SagaResult:
        calls.deadline.set(None)  # the deadline of the call is not the order's
        try:
            result = await self._drive(run, work, steps)
        except DomainError as error:
            if not run.recorded:
                raise
            log.warning("order left to recovery", order_id=work.order.order_id, reason=error.reason)
            result = SagaResult.UNFINISHED
        except Exception:
            if not run.recorded:
                raise
            # The order is in the journal, so recovery finishes it whatever the error was.
            log.exception("order left to recovery", order_id=work.order.order_id)
            result = SagaResult.UNFINISHED
        if result is SagaResult.UNFINISHED:
            await self._release(run, work)
        return result

    async def _drive(self, run: Run, work: Work, steps: Saga) -> SagaResult:
        result: Any = None
        step = ""
        while True:
            try:
                command = steps.send(result)
            except StopIteration as stop:
                ended: SagaResult = stop.value
                return ended
            if isinstance(command, saga.Wait):
                result = await self._wait(run, command)
                if result:
                    self._metrics.record_retry(step)
                continue
            step = COMMAND_NAMES[type(command)]
            before, after = COMMAND_FAILPOINTS[type(command)]
            await self._failpoints.reach(before)
            result = await self._perform(run, work, command)
            await self._failpoints.reach(after)

    async def _perform(self, run: Run, work: Work, command: Command[Any]) -> Any:
        order, claim = work.order, run.claim
        performing: Awaitable[Any] | None = None
        match command:
            case saga.Insert() if work.new is not None:
                performing = self._insert(run, work.new)
            case saga.Charge(retry) if work.card is not None:
                performing = self._payment.charge(
                    claim.charge_key, order.total, work.card, fingerprint=work.fingerprint, retry=retry
                )
            case saga.Resolve():
                performing = self._payment.resolve(claim.charge_key, order.total, fingerprint=work.fingerprint)
            case saga.Void():
                performing = self._payment.void(claim.charge_key)
            case saga.Ship():
                performing = self._shipping.ship(claim.ship_key, order.address, order.lines)
            case saga.ResolveShipment():
                performing = self._shipping.resolve(claim.ship_key)
            case saga.Update(transition):
                performing = self._update(run, work, transition)
            case saga.Send() if run.placed is not None and run.removal is not None:
                performing = self._outbox.send_now(run.placed, run.removal)
        if performing is None:
            raise AssertionError(f"{command} is not possible with this work")
        return await performing

    async def _insert(self, run: Run, new: NewOrder) -> bool:
        if await self._journal.insert(new) is not None:
            return False
        run.recorded = True
        self._metrics.record_change(new.order.order_id, State.CHARGING)
        return True

    async def _update(self, run: Run, work: Work, transition: Transition) -> bool:
        placed = PlacedOrder(work.order, transition.tracking_id) if transition.after is State.SHIPPED else None
        if placed is not None:
            # Whatever becomes of the record, the items were shipped: the next worker ships them under the same key.
            run.removal = await self._outbox.begin_removal(placed)
        updated = await self._journal.update(run.claim, transition)
        if not updated and transition.after in RESTORABLE and await self._restore(run, work):
            updated = await self._journal.update(run.claim, transition)
        if not updated:
            log.warning("stale update rejected", order_id=work.order.order_id, epoch=run.claim.epoch)
            return False
        if transition.after is State.CHARGING:
            run.claim = run.claim.next_attempt()
            return True
        if placed is not None:
            run.placed = placed
            self._metrics.record_placed(work.order)
        reason = transition.refusal.reason if transition.refusal else ""
        self._metrics.record_change(work.order.order_id, transition.after, reason)
        return True

    async def _restore(self, run: Run, work: Work) -> bool:
        """Record the order again if the journal has lost it. Return whether it did and this worker holds the order."""
        if work.new is None or await self._journal.read(work.order.order_id) is not None:
            return False
        log.warning("order is missing from the journal and recorded again", order_id=work.order.order_id)
        lost = replace(work.new, attempt=run.claim.attempt, epoch=run.claim.epoch)
        return await self._journal.insert(lost) is None

    async def _wait(self, run: Run, wait: saga.Wait) -> bool:
        run.last_reason = wait.reason
        pause = min(_FIRST_PAUSE_SECONDS * 2**wait.tries, _LONGEST_PAUSE_SECONDS)
        if asyncio.get_running_loop().time() + pause >= run.retry_until:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause)
        return not self._closing.is_set()

    async def _release(self, run: Run, work: Work) -> None:
        order_id, delay = work.order.order_id, work.release_delay_seconds
        try:
            await self._journal.release(run.claim, delay_seconds=delay, reason=run.last_reason)
        except JournalUnavailable:
            log.warning("lease not released, it will expire", order_id=order_id)
