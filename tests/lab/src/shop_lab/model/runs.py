"""Runs the code of sagas and of the journal under random faults, and records each step as an action of Orders.tla."""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

from typing_extensions import override

from chassis.sql.database import Row, Statement
from checkout_service import commands, saga
from checkout_service.commands import InDoubt, Refused
from checkout_service.domain import RELEASED_CART, State
from checkout_service.ports import Entry
from shop_kit import saga_peers, sagas
from shop_kit.saga_peers import PEER_COMMANDS, Content
from shop_kit.sagas import MemoryDatabase, migrated_schema, now
from shop_lab.model.tlc import Step

REQUESTS = ("ann", "ben")
PRICES = (1, 2)
MAX_ATTEMPTS = 4
MAX_STEPS = 60
WRONG_RUNS = ("a step left out", "two steps exchanged", "a charge under another attempt")


class ReplicatedDatabase(MemoryDatabase):
    """A database with a standby, and a clock that jumps over all leases at each write."""

    def __init__(self, schema: bytes) -> None:
        super().__init__(schema)
        self._standby = schema

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        self.seconds += 1000
        return await super().write(*batch)

    def replicate(self) -> None:
        self._standby = self.connection.serialize()

    def fail_over(self) -> None:
        self.connection.deserialize(self._standby)


@dataclass
class Payment(saga_peers.Payment):
    """Declines every third card."""

    chance: random.Random = field(default_factory=random.Random)

    @override
    def declines(self, request: str) -> bool:
        return self.chance.choice((False, False, True))


@dataclass
class Shipping(saga_peers.Shipping):
    """Refuses three of ten calls, even for what it has shipped."""

    chance: random.Random = field(default_factory=random.Random)

    @override
    def refuses(self, key: str) -> bool:
        return self.chance.random() < 0.3


@dataclass
class Task(sagas.Task):
    """A task that remembers the last result that was not in doubt."""

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


class World(sagas.World):
    """Two workers on the orders of one cart without a key."""

    payment: Payment
    shipping: Shipping

    def __init__(self, seed: int, schema: bytes) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - not a secret
        self.database = ReplicatedDatabase(schema)
        super().__init__(self.database, Payment(chance=self.chance), Shipping(chance=self.chance))
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

    @override
    def shipped(self, task: sagas.Task) -> Content:
        return replace(super().shipped(task), price=0)  # in the model shipping knows no prices

    def call(self, name: str, request: str) -> None:
        """A customer sends a request, as OrderPlacer treats it."""
        price = self.chance.choice(PRICES)
        new, entry = self.new_order(request, price), self.entry()
        if entry is None:
            assert now(self.journal.insert(new)) is None
            self.tasks[name] = Task(saga.place(), new)
            self.send(name, True)
            self.record("Insert", name, request, price)
        elif entry.state in RELEASED_CART:
            self.resume("reopen", name, request, now(self.journal.reopen(entry, new)), price)
        elif entry.state is State.CHARGING and entry.fingerprint == request:
            self.resume("take_over", name, request, now(self.journal.take_over(entry)))

    def resume(self, action: str, name: str, request: str, taken: Entry | None, price: int = 1) -> None:
        assert taken is not None
        steps = saga.take_over(taken) if action == "take_over" else saga.charge(resumed=False)
        self.tasks[name] = Task(steps, taken)
        self.record(action, name, request, price)

    def recover(self, name: str) -> None:
        for entry in self.claim_expired(1):
            self.tasks[name] = Task(saga.recover(entry), entry)
            self.record("claim_expired", name)
            return

    def advance(self, name: str) -> None:
        """Perform the task's command. An order that the journal has lost is restored in the same step."""
        task = self.tasks[name]
        action = type(task.command).__name__
        self.send(name, self.perform(task))
        if isinstance(task.command, commands.Restore):
            is_restored = self.perform(task)
            self.send(name, is_restored)
            action = "Restore" if is_restored else action
        self.record(action, name)

    def send(self, name: str, result: Any) -> None:
        task = self.tasks[name]
        task.outcome = task.outcome if isinstance(result, InDoubt) else result
        try:
            task.command = task.steps.send(result)
            while isinstance(task.command, commands.Wait | commands.StartRemoval | commands.Send):
                task.command = task.steps.send(True)
        except StopIteration:
            del self.tasks[name]

    def delay(self, name: str) -> None:
        task = self.tasks[name]
        if isinstance(task.command, PEER_COMMANDS):
            claim, perform = task.entry.claim, self.request(task)
            content = self.charged(task)
            if isinstance(task.command, commands.Ship):
                content = self.shipped(task)
                perform = partial(self.shipping.ship, claim.ship_key, content, certainly=True)
            self.delayed[type(task.command).__name__, claim.charge_key, content] = perform
            self.send(name, InDoubt(""))
            self.record("Delay", name)

    def deliver(self) -> None:
        call = self.chance.choice(list(self.delayed))
        before = dict(self.payment.ledger), dict(self.shipping.manifest)
        self.delayed.pop(call)()
        if before != (self.payment.ledger, self.shipping.manifest):
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
        entries = [self.payment.ledger.get(claim.charge_key, ("NONE", None)) for claim in claims]
        charges = [(state, *(("none", 0) if content is None else astuple(content))) for state, content in entries]
        shipments = [self.shipment(claim.ship_key) for claim in claims]
        tasks = [self.tasks[name].observed() if name in self.tasks else ("idle", "") for name in ("w1", "w2")]
        view = {"row": self.row(), "charges": charges, "shipments": shipments, "tasks": tasks}
        self.steps.append({"action": action, "task": task, "request": request, "price": price, "view": view})

    def shipment(self, key: str) -> str:
        if key not in self.shipping.manifest:
            return "NONE"
        content = self.shipping.manifest[key]
        return content.request if content else "FENCED"

    def row(self) -> tuple[Any, ...]:
        entry = self.entry()
        if entry is None:
            return ()
        owner = next((name for name, task in self.tasks.items() if task.entry.owner == entry.owner), "none")
        price = entry.order.total.total_nanos // 10**9
        after = entry.refused_as or State.ABANDONED if entry.state is State.CHARGING else ""
        return (entry.state.value, entry.attempt, owner, entry.fingerprint, price, str(after))


def record_runs(count: int) -> list[list[Step]]:
    """Return the steps of that many runs, with the seeds 0, 1, 2 ..."""
    schema = migrated_schema()
    return [World(seed, schema).run() for seed in range(count)]


def wrong_runs(runs: list[list[Step]]) -> dict[str, list[list[Step]]]:
    """Return a run that the model must reject for each of WRONG_RUNS."""
    run = next(run for run in runs if [step["action"] for step in run[:3]] == ["Insert", "Charge", "Ship"])
    moved = copy.deepcopy(run)
    for step in moved[1:]:
        step["view"]["charges"].reverse()
    wrong = ([*run[:1], *run[2:]], [run[0], run[2], run[1], *run[3:]], moved)
    return {name: [steps] for name, steps in zip(WRONG_RUNS, wrong, strict=True)}
