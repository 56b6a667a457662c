"""The saga under thousands of schedules: workers die at any step, calls are lost, delayed or duplicated, leases expire.

The journal is the real one, on SQLite in memory with a simulated clock. Payment and shipping are models that follow the
contract: one effect per key, and no charge after its fence.
"""

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from chassis import database
from chassis.money import Money
from checkout_service import saga
from checkout_service.domain import OPEN, REFUSED, Address, Order, OrderLine, PlacedOrder, Refusal, State, charge_key
from checkout_service.journal import sqlite
from checkout_service.journal.database import Database, Parameters, Row, Statement
from checkout_service.journal.opening import MIGRATIONS
from checkout_service.journal.sql import SqlJournal
from checkout_service.outcomes import Charged, Fenced, InDoubt, Refused, Released, Shipped, Unsupported
from checkout_service.ports import Entry, NewOrder
from checkout_service.saga import SagaResult

SCHEDULES = 5_000
PARTS = 5
MAX_TASKS = 8
FINAL = REFUSED | {State.SHIPPED}
REFUSAL = Refusal("FailedPrecondition", "NO", "no")
ORDER = Order(
    "", "user", "a@b.example", "", Address("Main 1", "Berlin", "", "Germany", 1),
    (OrderLine("mug", 1, Money("EUR", 5 * 10**9)),), Money("EUR", 10**9),
)  # fmt: skip


class Broken(AssertionError):
    """An invariant is violated."""


class MemoryDatabase(Database):
    """SQLite in memory, with a simulated clock and without threads."""

    def __init__(self, schema: Sequence[str]) -> None:
        self.seconds = 0.0
        self.checks_epoch = True
        self._render = cache(replace(sqlite.DIALECT, now="(schedule_now())").render)
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.create_function("schedule_now", 0, lambda: self.seconds)
        for statement in schema:
            self._connection.execute(statement)

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        return [self._run(text, parameters) for text, parameters in batch]

    @override
    async def read(self, text: str, parameters: Parameters) -> list[Row]:
        return self._run(text, parameters)

    def clear(self) -> None:
        self.seconds = 1000.0
        for table in ("orders", "outbox", "order_events"):
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - constants

    def _run(self, text: str, parameters: Parameters) -> list[Row]:
        if not self.checks_epoch:
            text = text.replace(" AND epoch = :epoch AND state = :", " AND state = :")
        return self._connection.execute(self._render(text), parameters).fetchall()


@dataclass
class Payment:
    """Charges once per key, and never under a fenced key."""

    accepts: bool
    has_ledger: bool
    deduplicates: bool = True
    fences: bool = True
    ledger: dict[str, str] = field(default_factory=dict)
    captured: list[str] = field(default_factory=list)

    def charge(self, key: str) -> Any:
        state = self.ledger.get(key) if self.deduplicates else None
        if state is None and not self.accepts:
            return Refused(REFUSAL)
        if state is None:
            self.ledger[key] = "charged"
            self.captured.append(key)
        return Charged(key) if self.ledger[key] == "charged" else {"fenced": Fenced()}.get(self.ledger[key], Released())

    def resolve(self, key: str) -> Any:
        if not self.has_ledger:
            return Unsupported()
        state = self.ledger.get(key)
        if state is None and self.fences:
            self.ledger[key] = "fenced"
        return {"charged": Charged(key), "voided": Released()}.get(state or "", Fenced())

    def void(self, key: str) -> Any:
        if not self.has_ledger:
            return Unsupported()
        if self.ledger.get(key) == "charged":
            self.ledger[key] = "voided"
            self.captured.remove(key)
        return Released()


@dataclass
class Shipping:
    """Ships once per key, or refuses for good."""

    accepts: bool
    shipped: dict[str, str] = field(default_factory=dict)

    def ship(self, key: str) -> Any:
        if not self.accepts:
            return Refused(REFUSAL)
        return Shipped(self.shipped.setdefault(key, f"track-{key}"))


@dataclass
class Task:
    """A saga that a worker runs."""

    steps: saga.Saga
    order: Order
    attempt: int
    epoch: int
    new: NewOrder | None
    command: Any = None
    placed: PlacedOrder | None = None


class World:
    """One customer's order, the workers that run it, and their calls in flight."""

    def __init__(self, memory: MemoryDatabase, payment: Payment, shipping: Shipping) -> None:
        memory.clear()
        self.memory = memory
        self.journal = SqlJournal(memory, "worker")
        self.payment = payment
        self.shipping = shipping
        self.tasks: list[Task] = []
        self.delayed: list[Callable[[], Any]] = []
        self.answers: set[PlacedOrder] = set()
        self.refused = False
        self.orders = 0

    def step(self, choice: int) -> None:
        """Perform one event of the schedule."""
        what, which = choice % 16, choice // 16
        if what == 0:
            self.call()
        elif what == 1:
            self.memory.seconds += (5.0, 16.0, 31.0, 301.0)[which % 4]
        elif what == 2:
            self.recover()
        elif what == 3 and self.delayed:
            self.delayed.pop(which % len(self.delayed))()
        elif self.tasks:
            self.advance(self.tasks[which % len(self.tasks)], (what - 4) % 10)

    def call(self) -> None:
        """The customer sends the request, for the first time or again, with the card."""
        entry = now(self.journal.find("scope"))
        if entry is None:
            self.orders += 1
            order = replace(ORDER, order_id=f"order-{self.orders}")
            new = NewOrder("scope", "fingerprint", order, "")
            self.begin(saga.place(), order, 1, 1, new)
        elif entry.placed is not None:
            self.answers.add(entry.placed)
        elif entry.state in REFUSED:
            self.refused = True
        elif entry.state is State.ABANDONED or (entry.state is State.CHARGING and not entry.leased):
            self.resume(entry, now(self.journal.take_over(entry)))

    def resume(self, seen: Entry, taken: Entry | None) -> None:
        if taken is not None:
            steps = saga.charge(doubtful=seen.state is State.CHARGING)
            self.begin(steps, replace(ORDER, order_id=taken.order_id), taken.attempt, taken.epoch, None)

    def recover(self) -> None:
        """Run one turn of a recovery loop."""
        for state, failed in product(OPEN, (False, True)):
            for entry in now(self.journal.claim_expired(state, 4, failed=failed)):
                steps = saga.release() if state is State.VOIDING else saga.resolve()
                self.begin(steps, replace(ORDER, order_id=entry.order_id), entry.attempt, entry.epoch, None)

    def begin(self, steps: saga.Saga, order: Order, attempt: int, epoch: int, new: NewOrder | None) -> None:
        if len(self.tasks) < MAX_TASKS:
            task = Task(steps, order, attempt, epoch, new)
            task.command = next(steps)
            self.tasks.append(task)

    def advance(self, task: Task, fate: int) -> None:
        """Perform the task's command. Fate 1: the worker dies before it, 2: after it; others concern calls to peers."""
        command = task.command
        if fate == 1:
            self.tasks.remove(task)
            return
        if isinstance(command, saga.Wait):
            self.send(task, fate not in {3, 4})
        elif isinstance(command, saga.Insert | saga.Update | saga.Send):
            result = self.write(task, command)
            self.tasks.remove(task) if fate == 2 else self.send(task, result)
        else:
            self.exchange(task, self.request(task, command), fate)

    def exchange(self, task: Task, request: Callable[[], Any], fate: int) -> None:
        """Call a peer. Fate 3: the request is lost, 4: the reply is lost, 5: the request is delayed, 6: duplicated."""
        if fate in {5, 6}:
            self.delayed.append(request)
        result = InDoubt("") if fate in {3, 5} else request()
        if fate == 2:
            self.tasks.remove(task)
        else:
            self.send(task, InDoubt("") if fate == 4 else result)

    def request(self, task: Task, command: Any) -> Callable[[], Any]:
        key = charge_key(task.order.order_id, task.attempt)
        match command:
            case saga.Charge(retry) if retry and not self.payment.has_ledger:
                return Unsupported
            case saga.Charge():
                return lambda: self.payment.charge(key)
            case saga.Resolve():
                return lambda: self.payment.resolve(key)
            case saga.Void():
                return lambda: self.payment.void(key)
            case _:
                return lambda: self.shipping.ship(task.order.order_id)

    def write(self, task: Task, command: Any) -> Any:
        if isinstance(command, saga.Insert) and task.new is not None:
            return now(self.journal.insert(task.new)) is None
        if isinstance(command, saga.Update):
            transition = command.transition
            changed = now(self.journal.update(task.order.order_id, task.epoch, transition))
            if changed and transition.after is State.SHIPPED:
                task.placed = PlacedOrder(task.order, transition.tracking_id)
            return changed
        return None

    def send(self, task: Task, result: Any) -> None:
        try:
            task.command = task.steps.send(result)
        except StopIteration as stop:
            self.tasks.remove(task)
            if task.placed is not None:
                self.answers.add(task.placed)  # the caller receives it
            if stop.value is SagaResult.UNFINISHED:
                now(self.journal.release(task.order.order_id, task.epoch, delay_seconds=0, reason=""))

    def finish(self) -> Entry:
        """Without more faults: deliver delayed calls, and run customer and recovery until the order is settled."""
        while self.delayed:
            self.delayed.pop()()
        for _ in range(12):
            self.call()
            self.settle()
            self.memory.seconds += 301
            self.recover()
            self.settle()
            entry: Entry = now(self.journal.find("scope"))
            if entry.state in FINAL:
                break
        self.call()
        return entry

    def settle(self) -> None:
        while self.tasks:
            self.advance(self.tasks[0], 0)

    def check(self, entry: Entry) -> None:
        """Check the invariants against the peers' ledgers."""
        captured, shipped = len(self.payment.captured), len(self.shipping.shipped)
        if captured > 1 or shipped > 1:
            raise Broken(f"{captured} charges, {shipped} shipments")
        if entry.state not in FINAL:
            raise Broken(f"ended as {entry.state}")
        if (entry.state is State.SHIPPED) != (shipped == 1) or shipped > captured:
            raise Broken(f"{entry.state} with {shipped} shipments and {captured} charges")
        if captured > shipped and entry.state is not State.NEEDS_REFUND:
            raise Broken("charged, not shipped")
        if self.answers - {entry.placed} or (self.answers and self.refused):
            raise Broken("callers received different answers")


def now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits")


def run(memory: MemoryDatabase, schedule: bytes, *, without: str = "") -> None:
    """Run one schedule, whose first byte configures the peers. `without` disables one of the safeguards."""
    kind = schedule[0] if schedule else 0
    payment = Payment(accepts=kind % 8 != 7, has_ledger=kind // 8 % 8 != 7)
    payment.deduplicates, payment.fences = without != "key", without != "fence"
    memory.checks_epoch = without != "epoch"
    world = World(memory, payment, Shipping(accepts=kind // 64 % 4 != 3))
    for choice in b"\0" + schedule[1:]:
        world.step(choice)
    world.check(world.finish())


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> MemoryDatabase:
    path: Path = tmp_path_factory.mktemp("schema") / "checkout.db"
    database.migrate(f"sqlite:///{path}", MIGRATIONS)
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rootpage").fetchall()
    connection.close()
    return MemoryDatabase([row[0] for row in rows])


def schedules(count: int, *phases: Phase) -> Callable[[Any], Any]:
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, database=None, phases=phases, suppress_health_check=checks)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_an_order_survives_every_schedule(memory: MemoryDatabase, part: int) -> None:  # noqa: ARG001 - for xdist
    ran = 0

    @schedules(SCHEDULES, Phase.generate, Phase.shrink)
    @given(st.binary(min_size=8, max_size=48))
    def holds(schedule: bytes) -> None:
        nonlocal ran
        ran += 1
        run(memory, schedule)

    holds()
    assert ran >= SCHEDULES


@pytest.mark.timeout(300)
@pytest.mark.parametrize("safeguard", ["key", "fence", "epoch"])
def test_an_invariant_breaks_without(memory: MemoryDatabase, safeguard: str) -> None:
    @schedules(20_000, Phase.generate)
    @given(st.binary(min_size=8, max_size=48))
    def holds(schedule: bytes) -> None:
        run(memory, schedule, without=safeguard)

    with pytest.raises(Broken):
        holds()
