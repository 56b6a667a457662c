"""Does what sagas ask for. Each saga runs in a task of its own, which outlives the call that began it."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from chassis import calls
from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from checkout_service import saga
from checkout_service.clients import Payment, Shipping
from checkout_service.codec import answer_to_bytes
from checkout_service.domain import Card, Order, State, charge_key
from checkout_service.failpoints import COMMAND_FAILPOINTS
from checkout_service.journal import Journal, JournalUnavailable, NewOrder
from checkout_service.outbox import Outbox, Parcel
from checkout_service.saga import Command, Ending, Saga
from checkout_service.watch import Watch

log = structlog.get_logger()

PATIENCE_OF_LEASE = 2 / 3
"""How much of its lease a saga with a card tries before it leaves its order to recovery."""

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CLOSE_WITHIN_SECONDS = 7.0


@dataclass(frozen=True, slots=True)
class Work:
    """An order in the hands of this worker.

    Attributes:
        card: none in recovery.
        new: what is to be written down first; none when it is already.
        patience_seconds: how long to try what leaves its outcome open.
        leave_seconds: how long nobody shall try after that.
    """

    order: Order
    attempt: int
    epoch: int
    card: Card | None = None
    new: NewOrder | None = None
    patience_seconds: float = 0.0
    leave_seconds: float = 0.0

    @property
    def charge_key(self) -> str:
        """The key of this attempt's charge."""
        return charge_key(self.order.order_id, self.attempt)


class Run:
    """A saga under way.

    Attributes:
        answer: the response's bytes as soon as the order is shipped.
    """

    def __init__(self, work: Work) -> None:
        self.answer: bytes | None = None
        self.written = work.new is None
        self.give_up_at = asyncio.get_running_loop().time() + work.patience_seconds
        self.last_reason = ""
        self.task: asyncio.Task[Ending]


class Executor:
    """Runs sagas, and knows which ones are running."""

    def __init__(
        self,
        journal: Journal,
        payment: Payment,
        shipping: Shipping,
        outbox: Outbox,
        *,
        watch: Watch,
        failpoints: Failpoints,
    ) -> None:
        self._journal = journal
        self._payment = payment
        self._shipping = shipping
        self._outbox = outbox
        self._watch = watch
        self._failpoints = failpoints
        self._closing = asyncio.Event()
        self.running: dict[str, Run] = {}

    def start(self, work: Work, steps: Saga) -> Run:
        """Begin a saga. Its task raises DomainError only if nothing was written down."""
        run = Run(work)
        order_id = work.order.order_id
        run.task = asyncio.create_task(self._run(run, work, steps), name=f"order {order_id}")
        self.running[order_id] = run
        run.task.add_done_callback(lambda _: self._forget(order_id, run))
        return run

    async def close(self) -> None:
        """Wait for the running sagas; those that wait for a peer leave their orders to recovery."""
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
            run.task.exception()  # its caller may be gone

    async def _run(self, run: Run, work: Work, steps: Saga) -> Ending:
        calls.deadline.set(None)  # its caller's deadline is not the order's
        try:
            ending = await self._drive(run, work, steps)
        except DomainError as error:
            if not run.written:
                raise
            log.warning("order left to recovery", order_id=work.order.order_id, reason=error.reason)
            ending = Ending.LEFT
        except Exception:
            if not run.written:
                raise
            # Whatever broke, the order stands in the journal and recovery finishes it.
            log.exception("order left to recovery", order_id=work.order.order_id)
            ending = Ending.LEFT
        if ending is Ending.LEFT:
            await self._leave(run, work)
        return ending

    async def _drive(self, run: Run, work: Work, steps: Saga) -> Ending:
        result: Any = None
        while True:
            try:
                command = steps.send(result)
            except StopIteration as stop:
                ending: Ending = stop.value
                return ending
            if isinstance(command, saga.Wait):
                result = await self._wait(run, command)
                continue
            before, after = COMMAND_FAILPOINTS[type(command)]
            await self._failpoints.reach(before)
            result = await self._perform(run, work, command)
            await self._failpoints.reach(after)

    async def _perform(self, run: Run, work: Work, command: Command[Any]) -> Any:
        order = work.order
        doing: Awaitable[Any] | None = None
        match command:
            case saga.Insert() if work.new is not None:
                doing = self._insert(run, work.new)
            case saga.Charge(again) if work.card is not None:
                doing = self._payment.charge(work.charge_key, order.total, work.card, again=again)
            case saga.Resolve():
                doing = self._payment.resolve(work.charge_key)
            case saga.Void():
                doing = self._payment.void(work.charge_key)
            case saga.Ship():
                doing = self._shipping.ship(order.order_id, order.address, order.lines)
            case saga.Update():
                doing = self._update(run, work, command)
            case saga.Send() if run.answer is not None:
                parcel = Parcel(order.order_id, order.user_id, order.email, order.cart_etag, run.answer)
                doing = self._outbox.send_now(parcel)
        if doing is None:
            raise AssertionError(f"{command} can't be done with this work")
        return await doing

    async def _insert(self, run: Run, new: NewOrder) -> bool:
        if await self._journal.insert(new) is not None:
            return False
        run.written = True
        self._watch.changed(new.order.order_id, State.CHARGING)
        return True

    async def _update(self, run: Run, work: Work, change: saga.Update) -> bool:
        order = work.order
        answer = answer_to_bytes(order, change.tracking_id) if change.after is State.SHIPPED else None
        changed = await self._journal.update(order.order_id, work.epoch, change, answer)
        if changed:
            run.answer = answer
            self._watch.changed(order.order_id, change.after, change.refusal.reason if change.refusal else "")
        return changed

    async def _wait(self, run: Run, wait: saga.Wait) -> bool:
        run.last_reason = wait.reason
        pause = min(_FIRST_PAUSE_SECONDS * 2**wait.tries, _LONGEST_PAUSE_SECONDS)
        if asyncio.get_running_loop().time() + pause >= run.give_up_at:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause)
        return not self._closing.is_set()

    async def _leave(self, run: Run, work: Work) -> None:
        order_id = work.order.order_id
        try:
            await self._journal.release(order_id, work.epoch, delay_seconds=work.leave_seconds, reason=run.last_reason)
        except JournalUnavailable:
            log.warning("lease left to run out", order_id=order_id)
