"""Sagas step by step: with the real journal, on SQLite in memory, and with peers that follow the contract."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product
from typing import Any, cast

from typing_extensions import override

from chassis.failpoints import Failpoints
from chassis.telemetry.instruments import Telemetry
from chassis.values.money import Money
from chassis.values.orders import Address, Card, OrderLine
from checkout_service import commands, domain, saga
from checkout_service.commands import InDoubt
from checkout_service.domain import OPEN, REFUSED, RELEASED_CART, Order, State
from checkout_service.executor import Executor, Run
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.outbox import Outbox
from checkout_service.ports import Entry
from checkout_service.saga import SagaResult
from checkout_service.settling import may_decide
from shop_kit.memory_database import MemoryDatabase
from shop_kit.orders import new_order
from shop_kit.saga_peers import PaymentModel, ShippingModel

ANN, BEN = "Ann's card", "Ben's card"
FINAL = REFUSED | {State.SHIPPED}
MAX_TASKS = 8
CARD = Card("4242424242424242", 123, 2035, 11)
PEER_COMMANDS = (commands.Charge, commands.Resolve, commands.Void, commands.Ship, commands.ResolveShipment)

_LOOP = asyncio.new_event_loop()


def now(work: Awaitable[Any]) -> Any:
    """Run what waits for nothing but its own tasks."""
    return _LOOP.run_until_complete(work)


class ForgetfulDatabase(MemoryDatabase):
    """SQLite in memory that can lose its latest commits, whose clock is `seconds`."""

    def __init__(self, schema: bytes) -> None:
        super().__init__(schema, lambda: self.seconds)

    @override
    def clear(self) -> None:
        super().clear()
        self.seconds = 1000.0


class Task:
    """A saga that a worker runs, and the command that it performs next."""

    def __init__(self, steps: saga.Saga, run: Run) -> None:
        self.steps, self.run = steps, run
        self.command: Any = next(steps)


async def run_of(held: Entry) -> Run:
    """Return the part of a worker in an order that it holds."""
    return Run(held, CARD, release_delay_seconds=0.0)


class World:
    """A customer's order, or two requests for one cart, the workers that run them, and their calls in flight."""

    def __init__(
        self, memory: ForgetfulDatabase, payment: PaymentModel, shipping: ShippingModel, *, loses_commits: bool
    ) -> None:
        memory.clear()
        self.memory, self.journal = memory, Journal(memory, "worker")
        self.payment, self.shipping = payment, shipping
        metrics, no_outbox = OrderMetrics(Telemetry()), cast("Outbox", None)
        self.executor = Executor(self.journal, payment, shipping, no_outbox, metrics, Failpoints())
        self.loses_commits, self.has_key = loses_commits, True
        self.price = 5
        self.tasks: list[Task] = []
        self.delayed: list[Callable[[], Any]] = []
        self.callers = {ANN}
        self.answers: set[tuple[Order, str]] = set()
        self.refused = False
        self.decisions: list[domain.Refusal] = []

    def entry(self) -> Entry | None:
        found: Entry | None = now(self.journal.find("scope"))
        return found

    def call(self, card: str) -> None:
        """A customer sends a request, for the first time or again, with the card."""
        self.callers.add(card)
        address, line = Address(card, "Berlin", "", "Germany", 1), OrderLine("mug", 1, Money.of("EUR", self.price))
        new = new_order(fingerprint=card, address=address, lines=(line,), shipping_cost=Money.of("EUR", 0))
        entry = self.entry()
        if entry is None:
            self.begin(saga.place(), new)
        elif entry.fingerprint != card:
            if entry.state in RELEASED_CART:
                self.resume(now(self.journal.reopen(entry, new)))
        elif entry.is_placed:
            self.answers.add((entry.order, entry.tracking_id))
        elif entry.state in REFUSED:
            self.refused |= entry.state is not State.NEEDS_REVIEW
        elif entry.state is State.ABANDONED:
            self.resume(now(self.journal.reopen(entry, replace(new, order=entry.order))))
        elif entry.state is State.CHARGING and not entry.leased:
            taken = now(self.journal.take_over(entry))
            self.begin(saga.take_over(taken), taken)

    def resume(self, taken: Entry | None) -> None:
        if taken is not None:
            self.begin(saga.charge(resumed=False), taken)

    def recover(self) -> None:
        """Claim orders as one turn of every recovery loop does."""
        for state, failed in product(OPEN, (False, True)):
            for entry in now(self.journal.claim_expired(state, 4, failed=failed)):
                self.begin(saga.recover(entry), entry)

    def decide(self, decision: domain.Refusal) -> None:
        """An operator decides how the order ends, if payment and shipping can tell what they did."""
        entry, can_tell = self.entry(), self.payment.has_ledger and self.shipping.has_manifest
        if not can_tell or entry is None or not may_decide(entry.state, decision):
            return
        tracking_id = f"track-{domain.ship_key(entry.order_id, entry.attempt)}"
        decided = domain.Transition(entry.state, State.SETTLING, "", tracking_id, decision, step="settling")
        if now(self.journal.update(entry, decided)):
            entry = self.entry()
            assert entry is not None
            self.decisions.append(decision)
            self.begin(saga.recover(entry), entry)

    def begin(self, steps: saga.Saga, held: Entry) -> None:
        if len(self.tasks) < MAX_TASKS:
            self.tasks.append(Task(steps, now(run_of(held))))

    def advance(self, task: Task, fate: int) -> None:
        """Perform the task's command. Fate 1: the worker dies before it, 2: after it; others concern calls to peers."""
        if fate == 1:
            self.tasks.remove(task)
        elif isinstance(task.command, commands.Wait):
            self._send(task, fate not in {3, 4})
        elif isinstance(task.command, PEER_COMMANDS):
            self._exchange(task, self._request(task), fate)
        else:
            # What follows a placed order has no effect here.
            has_effect = not isinstance(task.command, commands.StartRemoval | commands.Send)
            result = now(self.executor._perform(task.run, task.command)) if has_effect else None
            self.tasks.remove(task) if fate == 2 else self._send(task, result)

    def settle(self, *, all_but: Task | None = None) -> None:
        """Run the tasks to their ends without faults."""
        while others := [task for task in self.tasks if task is not all_but]:
            self.advance(others[0], 0)

    def finish(self) -> Entry:
        """Without more faults: deliver delayed calls, and run customers and recovery until the order is settled."""
        while self.delayed:
            self.delayed.pop()()
        rounds = 0
        for _ in range(12):
            for card in sorted(self.callers):
                self.call(card)
                self.settle()
            self.memory.seconds += 301
            self.recover()
            self.settle()
            entry = self.entry()
            assert entry is not None
            # Every caller has repeated its request since the order was settled.
            rounds = rounds + 1 if entry.state in FINAL else 0
            if rounds == 2:
                break
        assert entry is not None
        self.call(entry.fingerprint)
        return entry

    def _request(self, task: Task) -> Callable[[], Any]:
        """Return the call that the task's command makes; it does not change when the task goes on."""
        entry, command = task.run.entry, task.command
        return lambda: now(self.executor._call_peer(entry, CARD, command))

    def _exchange(self, task: Task, request: Callable[[], Any], fate: int) -> None:
        """Call a peer. Fate 3: the request is lost, 4: the reply is lost, 5: the request is delayed, 6: duplicated."""
        if fate == 5 or (fate == 6 and self.payment.has_ledger and self.shipping.has_manifest):
            self.delayed.append(request)
        result = InDoubt("") if fate in {3, 5} else request()
        if fate == 2:
            self.tasks.remove(task)
        else:
            self._send(task, InDoubt("") if fate == 4 else result)

    def _send(self, task: Task, result: Any) -> None:
        try:
            task.command = task.steps.send(result)
        except StopIteration as stop:
            self.tasks.remove(task)
            if task.run.entry.is_placed:
                self.answers.add((task.run.entry.order, task.run.entry.tracking_id))  # the caller receives it
            if stop.value is SagaResult.UNFINISHED:
                now(self.journal.release(task.run.entry, delay_seconds=0, reason=""))
