"""Runs the code of sagas and of the journal under random faults, and records each step as an action of Orders.tla.

The journal is the real one, on SQLite in memory. Payment and shipping follow the contract, as in the model.
"""

import asyncio
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from typing_extensions import override

from chassis.sql.database import Database, Parameters, Row, Statement
from chassis.sql.migrate import migrate
from chassis.sql.sqlite import add_functions, fetch
from chassis.values.money import Money
from checkout_service import commands, saga
from checkout_service.domain import (
    OPEN,
    RELEASED_CART,
    Address,
    Order,
    OrderLine,
    Refusal,
    State,
    order_id_of,
)
from checkout_service.journal.opening import MIGRATIONS
from checkout_service.journal.sql import SqlJournal
from checkout_service.outcomes import Charged, Fenced, InDoubt, KeyReused, Refused, Released, Shipped
from checkout_service.ports import Entry
from shop_lab.simulation.history import PEER_COMMANDS
from shop_lab.simulation.projection import MAX_ATTEMPTS

REQUESTS = ("ann", "ben")
PRICES = (1, 2)
MAX_STEPS = 60
SCOPE = "scope"
REFUSAL = Refusal("FailedPrecondition", "NO", "no")


class ReplicatedDatabase(Database):
    """SQLite in memory, with a standby and a clock that jumps over all leases at each read of it."""

    def __init__(self, schema: bytes) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._seconds = 0.0
        add_functions(self._connection, lambda: self._seconds)
        self._connection.deserialize(schema)
        self._standby = schema

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        self._seconds += 1000
        return [fetch(self._connection, text, parameters) for text, parameters in batch]

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        return fetch(self._connection, text, parameters)

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return fetch(self._connection, text, parameters)

    def replicate(self) -> None:
        self._standby = self._connection.serialize()

    def fail_over(self) -> None:
        self._connection.deserialize(self._standby)


@dataclass(frozen=True, slots=True)
class Content:
    """What a charge or a shipment is for."""

    request: str
    price: int


@dataclass(slots=True)
class Peers:
    """The ledgers of payment and shipping: state and content by key."""

    chance: random.Random
    charges: dict[str, tuple[str, Content | None]] = field(default_factory=dict)
    shipments: dict[str, str] = field(default_factory=dict)

    def charge(self, key: str, content: Content) -> Any:
        if key not in self.charges:
            self.charges[key] = (self.chance.choice(("CHARGED", "CHARGED", "DECLINED")), content)
        state, charged = self.charges[key]
        if state == "FENCED":
            return Fenced(existing=True)
        if charged != content:
            return KeyReused()
        return {"CHARGED": Charged(key), "DECLINED": Refused(REFUSAL), "VOIDED": Released()}[state]

    def resolve(self, key: str, content: Content) -> Any:
        existing = key in self.charges
        state, charged = self.charges.setdefault(key, ("FENCED", None))
        if state == "CHARGED" and charged != content:
            return KeyReused(key)
        outcomes = {"CHARGED": Charged(key), "DECLINED": Refused(REFUSAL), "VOIDED": Released()}
        return outcomes.get(state) or Fenced(existing)

    def void(self, key: str) -> Any:
        state, charged = self.charges.get(key, ("", None))
        if state not in {"CHARGED", "VOIDED"}:
            return Refused(REFUSAL)
        self.charges[key] = ("VOIDED", charged)
        return Released()

    def ship(self, key: str, content: Content, *, certainly: bool = False) -> Any:
        entry = self.shipments.get(key)
        if entry == "FENCED":
            return Fenced(existing=True)
        if not certainly and self.chance.random() < 0.3:
            return Refused(REFUSAL)
        shipped = self.shipments.setdefault(key, content.request)
        return Shipped(key) if shipped == content.request else KeyReused()

    def resolve_shipment(self, key: str) -> Any:
        existing = key in self.shipments
        entry = self.shipments.setdefault(key, "FENCED")
        return Fenced(existing) if entry == "FENCED" else Shipped(key)


@dataclass
class Task:
    """A worker's saga and the command that it performs next."""

    steps: saga.Saga
    entry: Entry
    request: str
    command: Any
    outcome: Any = None

    def observed(self) -> tuple[str, str]:
        """Return the command as the model shows it."""
        match self.command:
            case commands.Update(transition):
                detail = transition.after.value
            case commands.ResolveShipment():
                detail = "refused" if isinstance(self.outcome, Refused) else "displaced"
            case _:
                detail = ""
        return type(self.command).__name__, detail


Step: TypeAlias = dict[str, Any]
"""An action of the model with its task, request and price, and what can be observed after it."""


class World:
    """Two workers on the orders of one cart without a key."""

    def __init__(self, seed: int, schema: bytes) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - not a secret
        self.database = ReplicatedDatabase(schema)
        self.journal = SqlJournal(self.database, "worker")
        self.peers = Peers(self.chance)
        self.tasks: dict[str, Task] = {}
        self.delayed: dict[tuple[str, str, Content], Callable[[], Any]] = {}
        self.steps: list[Step] = []
        self.replicated: tuple[Any, ...] = ()
        self.first_claim = self.new_order("ann", 1).claim

    def run(self) -> list[Step]:
        """Take random steps. Return them up to the first one with too many attempts."""
        for _ in range(MAX_STEPS):
            if actions := list(self.possible_actions()):
                self.chance.choice(actions)()
            attempts = [task.entry.attempt for task in self.tasks.values()]
            entry = self.entry()
            if max([*attempts, entry.attempt if entry else 0]) > MAX_ATTEMPTS:
                return self.steps[:-1]
        return self.steps

    def possible_actions(self) -> Iterator[Callable[[], None]]:
        for name in ("w1", "w2"):
            if name not in self.tasks:
                yield lambda name=name: self.call(name, self.chance.choice(REQUESTS))  # type: ignore[misc]
                yield lambda name=name: self.recover(name)  # type: ignore[misc]
        for name in self.tasks:
            yield from [lambda name=name: self.advance(name)] * 8
            yield lambda name=name: self.die(name)  # type: ignore[misc]
            yield from [lambda name=name: self.delay(name)] * 2
        yield from [self.deliver] * 2 * len(self.delayed)
        if self.row() != self.replicated:
            yield self.replicate
            yield self.fail_over

    def entry(self) -> Entry | None:
        found: Entry | None = now(self.journal.find(SCOPE))
        return found

    def new_order(self, request: str, price: int) -> Entry:
        lines = (OrderLine("mug", 1, Money("EUR", price * 10**9)),)
        address = Address(f"{request} street", "Berlin", "", "Germany", 1)
        order = Order(order_id_of(SCOPE), "user", "a@b.example", "etag", address, lines, Money("EUR", 0))
        return Entry(SCOPE, request, order)

    def call(self, name: str, request: str) -> None:
        """A customer sends a request, as OrderPlacer treats it."""
        price = self.chance.choice(PRICES)
        new, entry = self.new_order(request, price), self.entry()
        if entry is None:
            assert now(self.journal.insert(new)) is None
            steps = saga.place()
            next(steps)
            self.tasks[name] = Task(steps, new, request, steps.send(True))
            self.record("Insert", name, request, price)
        elif entry.state is State.ABANDONED and entry.fingerprint == request:
            self.resume("reopen", name, request, now(self.journal.reopen(entry, replace(new, order=entry.order))))
        elif entry.state in RELEASED_CART and entry.fingerprint != request:
            self.resume("reopen", name, request, now(self.journal.reopen(entry, new)), price)
        elif entry.state is State.CHARGING and entry.fingerprint == request:
            self.resume("take_over", name, request, now(self.journal.take_over(entry)))

    def resume(self, action: str, name: str, request: str, taken: Entry | None, price: int = 1) -> None:
        assert taken is not None
        steps = saga.take_over(taken) if action == "take_over" else saga.charge(resumed=False)
        self.tasks[name] = Task(steps, taken, request, next(steps))
        self.record(action, name, request, price)

    def recover(self, name: str) -> None:
        for state, failed in product(OPEN, (False, True)):
            for entry in now(self.journal.claim_expired(state, 1, failed=failed)):
                steps = saga.recover(entry)
                self.tasks[name] = Task(steps, entry, entry.fingerprint, next(steps))
                self.record("claim_expired", name)
                return

    def advance(self, name: str) -> None:
        """Perform the task's command."""
        task = self.tasks[name]
        command = task.command
        if isinstance(command, commands.Update):
            self.update(name, task, command)
        else:
            self.send(name, task, self.request_of(task)[1]())
            self.record(type(command).__name__, name)

    def update(self, name: str, task: Task, command: commands.Update) -> None:
        """Apply a transition, and restore a lost order, as Executor does."""
        updated = now(self.journal.update(task.entry.claim, command.transition))
        if updated and command.transition.after is State.CHARGING:
            task.entry = replace(task.entry, attempt=task.entry.attempt + 1, epoch=task.entry.epoch + 1)
        self.send(name, task, updated)
        is_restored = False
        if isinstance(task.command, commands.Restore):
            is_lost = task.entry.is_new and self.entry() is None
            is_restored = is_lost and now(self.journal.insert(task.entry)) is None
            self.send(name, task, is_restored)
        self.record("Restore" if is_restored else "Update", name)

    def send(self, name: str, task: Task, result: Any) -> None:
        task.outcome = task.outcome if isinstance(result, InDoubt) else result
        try:
            task.command = task.steps.send(result)
            while isinstance(task.command, commands.Wait | commands.StartRemoval | commands.Send):
                task.command = task.steps.send(True)
        except StopIteration:
            del self.tasks[name]

    def request_of(self, task: Task) -> tuple[tuple[str, str, Content], Callable[[], Any]]:
        """Return the call that the task's command makes, as a value and as a function."""
        content = Content(task.request, task.entry.order.total.total_nanos // 10**9)
        shipped = Content(task.entry.order.address.street_address.removesuffix(" street"), content.price)
        charge_key, ship_key = task.entry.claim.charge_key, task.entry.claim.ship_key
        match task.command:
            case commands.Charge():
                return ("Charge", charge_key, content), lambda: self.peers.charge(charge_key, content)
            case commands.Resolve():
                return ("Resolve", charge_key, content), lambda: self.peers.resolve(charge_key, content)
            case commands.Void():
                return ("Void", charge_key, content), lambda: self.peers.void(charge_key)
            case commands.ResolveShipment():
                return ("ResolveShipment", ship_key, content), lambda: self.peers.resolve_shipment(ship_key)
            case _:
                return ("Ship", ship_key, shipped), lambda: self.peers.ship(ship_key, shipped)

    def delay(self, name: str) -> None:
        task = self.tasks[name]
        if isinstance(task.command, PEER_COMMANDS):
            call, perform = self.request_of(task)
            if call[0] == "Ship":
                perform = lambda: self.peers.ship(call[1], call[2], certainly=True)  # noqa: E731
            self.delayed[call] = perform
            self.send(name, task, InDoubt(""))
            self.record("Delay", name)

    def deliver(self) -> None:
        call = self.chance.choice(list(self.delayed))
        before = dict(self.peers.charges), dict(self.peers.shipments)
        self.delayed.pop(call)()
        if before != (self.peers.charges, self.peers.shipments):
            self.record("Deliver", "w1")

    def die(self, name: str) -> None:
        del self.tasks[name]
        self.record("Die", name)

    def replicate(self) -> None:
        self.database.replicate()
        self.replicated = self.row()
        self.record("Replicate", "w1")

    def fail_over(self) -> None:
        self.database.fail_over()
        self.record("FailOver", "w1")

    def record(self, action: str, task: str, request: str = "ann", price: int = 1) -> None:
        claims = [replace(self.first_claim, attempt=attempt) for attempt in range(1, MAX_ATTEMPTS + 1)]
        entries = [self.peers.charges.get(claim.charge_key, ("NONE", None)) for claim in claims]
        charges = [(state, *(("none", 0) if content is None else astuple(content))) for state, content in entries]
        shipments = [self.peers.shipments.get(claim.ship_key, "NONE") for claim in claims]
        tasks = [self.tasks[name].observed() if name in self.tasks else ("idle", "") for name in ("w1", "w2")]
        view = {"row": self.row(), "charges": charges, "shipments": shipments, "tasks": tasks}
        self.steps.append({"action": action, "task": task, "request": request, "price": price, "view": view})

    def row(self) -> tuple[Any, ...]:
        entry = self.entry()
        if entry is None:
            return ()
        owner = next((name for name, task in self.tasks.items() if task.entry.owner == entry.owner), "none")
        price = entry.order.total.total_nanos // 10**9
        after = entry.refused_as or State.ABANDONED if entry.state is State.CHARGING else ""
        return (entry.state.value, entry.attempt, owner, entry.fingerprint, price, str(after))


_LOOP = asyncio.new_event_loop()


def now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing but its own tasks."""
    return _LOOP.run_until_complete(work)


def record_runs(count: int) -> list[list[Step]]:
    """Return the steps of that many runs, with the seeds 0, 1, 2 ..."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkout.db")
        migrate(f"sqlite:///{path}", MIGRATIONS)
        connection = sqlite3.connect(path)
        schema = connection.serialize()
        connection.close()
    return [World(seed, schema).run() for seed in range(count)]


def module_of(runs: Sequence[Sequence[Step]]) -> str:
    """Return the TLA+ module that defines the runs."""
    text = ",\n".join(_value(run) for run in runs)
    return f"---- MODULE Runs ----\nEXTENDS Sequences\nRuns == <<\n{text}\n>>\n====\n"


def _value(value: Any) -> str:
    """Return a value in TLA+: a dictionary as a record, a list or a tuple as a sequence."""
    if isinstance(value, dict):
        return f"[{', '.join(f'{name} |-> {_value(each)}' for name, each in value.items())}]"
    if isinstance(value, list | tuple):
        return f"<<{', '.join(map(_value, value))}>>"
    return json.dumps(value)
