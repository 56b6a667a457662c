"""Runs each saga in a task that outlives the call that started it, and performs the saga's commands."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from chassis.background import finish, log_errors, mark_retrieved
from chassis.deadline import deadline
from chassis.errors import DomainError
from chassis.failpoints import Failpoints
from chassis.values.backoff import backoff_seconds
from chassis.values.orders import Card
from checkout_service import commands
from checkout_service.commands import Command
from checkout_service.domain import State, Transition, charge_key, ship_key
from checkout_service.failpoints import around
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.ports import LEASE_SECONDS, Entry, Payment, Shipping
from checkout_service.saga import Saga, SagaResult

log = structlog.get_logger()

# A run that has the card retries failed steps for this fraction of its lease, then leaves the order to recovery.
RETRY_SHARE_OF_LEASE = 2 / 3

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_CLOSE_WITHIN_SECONDS = 7.0


@dataclass(eq=False)
class Run:
    """One run of an order's saga, in its own task.

    Attributes:
        entry: the order, updated with each transition that this run records.
        card: the card to charge; None in recovery, which tries each step once.
        release_delay_seconds: how long other workers must wait before claiming the order if this run leaves it open.
        recorded: whether the order is in the journal.
        preceded_by: the existing order that kept this order from being recorded, because it has the same scope or cart.
        task: the task that runs the saga. It raises an error only if the order is not in the journal.
    """

    entry: Entry
    card: Card | None
    release_delay_seconds: float
    task: asyncio.Task[SagaResult] = field(init=False)
    preceded_by: Entry | None = None
    removal: asyncio.Future[None] | None = None
    last_reason: str = ""

    def __post_init__(self) -> None:
        self.recorded = not self.entry.is_new
        self.began_at = asyncio.get_running_loop().time()

    async def result(self, until: float) -> SagaResult:
        """Return how the saga ended, or UNFINISHED if the saga is still running at `until`, an event-loop time."""
        # Don't use wait_for(): on a timeout it cancels the task, perhaps between charge and shipment.
        await asyncio.wait([self.task], timeout=max(until - asyncio.get_running_loop().time(), 0))
        return self.task.result() if self.task.done() else SagaResult.UNFINISHED


@dataclass(eq=False)
class Executor:
    """Runs sagas. The journal's leases last `lease_seconds`. `running` maps order ids to the current runs."""

    journal: Journal
    payment: Payment
    shipping: Shipping
    outbox: Outbox
    metrics: OrderMetrics
    failpoints: Failpoints
    lease_seconds: float = LEASE_SECONDS
    running: dict[str, Run] = field(default_factory=dict, init=False)
    _closing: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def start(self, entry: Entry, steps: Saga, card: Card | None = None, *, release_delay_seconds: float = 0.0) -> Run:
        """Start a saga for an order that this worker has leased, or for a new order, which the saga will record."""
        run = Run(entry, card, release_delay_seconds)
        # Use a task, so that a cancelled or expired call doesn't stop the saga between charge and shipment.
        run.task = asyncio.create_task(self._run(run, steps), name=f"order {entry.order_id}")
        # Identical requests may each start a run for the same new order. Until one records it, track the first run.
        if not entry.is_new or entry.order_id not in self.running:
            self.running[entry.order_id] = run
        run.task.add_done_callback(lambda _: self._forget(run))
        return run

    async def close(self) -> None:
        """Wait for the running sagas to end. Sagas that are backing off leave their orders to recovery."""
        self._closing.set()
        # A hanging peer must not delay the shutdown, so cancel the remaining sagas. Recovery continues their orders.
        await finish([run.task for run in self.running.values()], _CLOSE_WITHIN_SECONDS)

    def _forget(self, run: Run) -> None:
        if self.running.get(run.entry.order_id) is run:
            del self.running[run.entry.order_id]
        mark_retrieved(run.task)  # otherwise, asyncio would log an error that no caller retrieves

    async def _run(self, run: Run, steps: Saga) -> SagaResult:
        deadline.set(None)  # the order must continue after the call's deadline
        try:
            result = await self._drive(run, steps)
        except Exception as error:
            if not run.recorded:
                raise
            # The order is in the journal, so recovery will finish it whatever the error was.
            if isinstance(error, DomainError):
                log.warning("order left to recovery", order_id=run.entry.order_id, reason=error.reason)
            else:
                log.exception("order left to recovery", order_id=run.entry.order_id)
            result = SagaResult.UNFINISHED
        if result is SagaResult.UNFINISHED:
            # Without the release, the next worker would have to wait until the lease expires.
            delay, reason, order_id = run.release_delay_seconds, run.last_reason, run.entry.order_id
            releasing = self.journal.release(run.entry, delay_seconds=delay, reason=reason)
            await log_errors(releasing, "lease not released, it will expire", order_id=order_id)
        return result

    async def _drive(self, run: Run, steps: Saga) -> SagaResult:
        result: Any = None
        step = ""
        while True:
            try:
                command = steps.send(result)
            except StopIteration as stop:
                ended: SagaResult = stop.value
                return ended
            if isinstance(command, commands.Wait):
                result = await self._wait(run, command)
                if result:
                    self.metrics.record_retry(step)
                continue
            step = command.name
            before, after = around(type(command))
            await self.failpoints.reach(before)
            result = await self._perform(run, command)
            await self.failpoints.reach(after)

    async def _perform(self, run: Run, command: Command[Any]) -> Any:
        match command:
            case commands.Insert():
                return await self._insert(run)
            case commands.Update(transition):
                return await self._update(run, transition)
            case commands.Restore():
                return await self._restore(run)
            case commands.StartRemoval():
                run.removal = self.outbox.start_removal(run.entry)
                return None
            case commands.Send() if run.removal is not None:
                return await self.outbox.send_now(run.entry, run.removal)
            case _:
                return await self._call_peer(run.entry, run.card, command)

    def _call_peer(self, entry: Entry, card: Card | None, command: Command[Any]) -> Awaitable[Any]:
        order, attempt, fingerprint = entry.order, entry.attempt, entry.fingerprint
        key = charge_key(order.order_id, attempt)
        match command:
            case commands.Charge(retry) if card is not None:
                return self.payment.charge(key, order, card, fingerprint=fingerprint, retry=retry)
            case commands.Resolve():
                return self.payment.resolve(key, order, fingerprint=fingerprint)
            case commands.Void():
                return self.payment.void(key)
            case commands.Ship(charged_at, retry):
                return self.shipping.ship(ship_key(order.order_id, attempt), order, charged_at, retry=retry)
            case commands.ResolveShipment(charged_at):
                return self.shipping.resolve(ship_key(order.order_id, attempt), charged_at)
        raise AssertionError(f"{command} is not possible in this run")

    async def _insert(self, run: Run) -> bool:
        run.preceded_by = await self.journal.insert(run.entry)
        if run.preceded_by is not None:
            return False
        run.recorded = True
        self.running[run.entry.order_id] = run
        self.metrics.record_change(run.entry.order_id, State.CHARGING)
        return True

    async def _update(self, run: Run, transition: Transition) -> bool:
        entry = run.entry
        # The claim prevents a worker that was paused beyond its lease from overwriting its successor's updates.
        updated = await self.journal.update(entry, transition)
        if updated is None:
            log.warning("stale update rejected", order_id=entry.order_id, epoch=entry.epoch)
            return False
        run.entry = updated
        if transition.begins_attempt:
            return True
        if updated.is_placed:
            # Count the order here, because the transition to SHIPPED succeeds only once per order.
            self.metrics.record_placed(entry.order)
        reason = transition.refusal.reason if transition.refusal else ""
        self.metrics.record_change(entry.order_id, updated.state, reason)
        return True

    async def _restore(self, run: Run) -> bool:
        # If the order is missing and this worker inserted it, the journal has lost it.
        if not run.entry.is_new or await self.journal.read(run.entry.order_id) is not None:
            return False
        log.warning("order is missing from the journal and recorded again", order_id=run.entry.order_id)
        return await self.journal.insert(run.entry) is None

    async def _wait(self, run: Run, wait: commands.Wait) -> bool:
        run.last_reason = wait.reason
        pause = backoff_seconds(wait.tries + 1, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        # Runs without a card, such as recovery's, don't retry: they release the order, and a worker tries again later.
        retry_until = run.began_at + (RETRY_SHARE_OF_LEASE * self.lease_seconds if run.card is not None else 0.0)
        if asyncio.get_running_loop().time() + pause >= retry_until:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()
        return not self._closing.is_set()
