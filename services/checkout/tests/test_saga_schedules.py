"""The saga under thousands of schedules: workers die at any step, calls are lost, delayed or duplicated, leases expire.

In half of them the journal also loses commits: any number of the latest ones, at any moment. The journal is the real
one, on SQLite in memory with a simulated clock. Payment and shipping are models that follow the contract: one effect
per key, none behind its fence, and an error for a key that is used with other content.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from chassis.sql.database import Database, Parameters, Row, Statement
from chassis.sql.migrate import migrate
from chassis.sql.sqlite import add_functions, fetch
from chassis.values.money import Money
from checkout_service import commands, saga
from checkout_service.domain import (
    OPEN,
    REFUSED,
    RELEASED_CART,
    Address,
    Order,
    OrderLine,
    Refusal,
    State,
    Transition,
    order_id_of,
)
from checkout_service.journal.opening import MIGRATIONS
from checkout_service.journal.sql import SqlJournal
from checkout_service.outcomes import Charged, Fenced, InDoubt, KeyReused, Refused, Released, Shipped, Unsupported
from checkout_service.ports import Entry
from checkout_service.saga import SagaResult

LOOP = asyncio.new_event_loop()
SCHEDULES = 2_000
PARTS = 5
MAX_TASKS = 8
FINAL = REFUSED | {State.SHIPPED}
REFUSAL = Refusal("FailedPrecondition", "NO", "no")
SCOPE = "scope"
PEER_COMMANDS = (commands.Charge, commands.Resolve, commands.Void, commands.Ship, commands.ResolveShipment)
ANN, BEN = "Ann's card", "Ben's card"


class Broken(AssertionError):
    """An invariant is violated."""


_OF_CLAIM = " AND attempt = :attempt AND epoch = :epoch AND owner = :owner"


class MemoryDatabase(Database):
    """SQLite in memory, with a simulated clock and without threads.

    Everything is one transaction, in which a savepoint stands for a commit, so that the latest commits can be lost.
    """

    def __init__(self, schema: Sequence[str]) -> None:
        self.seconds = 0.0
        self.checks_claim = True
        self.commits = 0
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        add_functions(self._connection, lambda: self.seconds)
        for statement in schema:
            self._connection.execute(statement)

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        rows = [self._run(text, parameters) for text, parameters in batch]
        self.commits += 1
        self._connection.execute(f"SAVEPOINT commit_{self.commits}")
        return rows

    @override
    async def read(self, text: str, parameters: Parameters, *, within_seconds: float | None = None) -> list[Row]:
        return self._run(text, parameters)

    @override
    async def report(self, text: str, parameters: Parameters) -> list[Row]:
        return self._run(text, parameters)

    def clear(self) -> None:
        self.seconds = 1000.0
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN")
        self._connection.execute("SAVEPOINT commit_0")
        self.commits = 0

    def lose(self, count: int) -> None:
        """Lose up to this number of the latest commits."""
        self.commits = max(self.commits - count, 0)
        self._connection.execute(f"ROLLBACK TO commit_{self.commits}")

    def _run(self, text: str, parameters: Parameters) -> list[Row]:
        if not self.checks_claim:
            text = text.replace(_OF_CLAIM, "")
        return fetch(self._connection, text, parameters)


@dataclass
class Payment:
    """Charges once per key, and never under a fenced key.

    Attributes:
        ledger: state, amount and card by key.
        records_declines: otherwise a declined card is like a malformed one.
    """

    declined: frozenset[str]
    records_declines: bool
    has_ledger: bool
    deduplicates: bool = True
    fences: bool = True
    ledger: dict[str, tuple[str, Money | None, str]] = field(default_factory=dict)
    captured: list[str] = field(default_factory=list)

    def charge(self, key: str, amount: Money, card: str) -> Any:
        entry = self.ledger.get(key) if self.deduplicates else None
        if entry is None and card in self.declined:
            if self.records_declines:
                self.ledger[key] = "declined", amount, card
            return Refused(REFUSAL)
        if entry is None:
            entry = self.ledger[key] = "charged", amount, card
            self.captured.append(key)
        state, *charged = entry
        if state == "fenced":
            return Fenced(existing=True)
        if charged != [amount, card]:
            return KeyReused()
        return {"charged": Charged(key), "declined": Refused(REFUSAL), "voided": Released()}[state]

    def resolve(self, key: str, amount: Money, card: str) -> Any:
        if not self.has_ledger:
            return Unsupported()
        existing = key in self.ledger
        state, *charged = self.ledger.get(key, ("fenced", None, ""))
        if self.fences:
            self.ledger.setdefault(key, ("fenced", None, ""))
        if state == "charged":
            return Charged(key) if charged == [amount, card] else KeyReused(key)
        return {"fenced": Fenced(existing), "declined": Refused(REFUSAL), "voided": Released()}[state]

    def void(self, key: str) -> Any:
        if not self.has_ledger:
            return Unsupported()
        state, amount, card = self.ledger.get(key, ("", None, ""))
        if state == "charged":
            self.ledger[key] = "voided", amount, card
            self.captured.remove(key)
        return Released() if state in {"charged", "voided"} else Refused(REFUSAL)


@dataclass
class Shipping:
    """Ships once per key, and never under a fenced key.

    Attributes:
        accepts: changes while the shop runs, if the peer has a manifest service.
        forgets: refuses even what it has shipped already.
    """

    accepts: bool
    has_manifest: bool
    forgets: bool
    fences: bool = True
    shipped: dict[str, Order] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)

    def ship(self, key: str, order: Order) -> Any:
        if key in self.fenced:
            return Fenced(existing=True)
        if not self.accepts and (self.forgets or key not in self.shipped):
            return Refused(REFUSAL)
        first = self.shipped.setdefault(key, order)
        same = (first.address, first.lines) == (order.address, order.lines)
        return Shipped(f"track-{key}") if same else KeyReused()

    def resolve(self, key: str) -> Any:
        if not self.has_manifest:
            return Unsupported()
        if key in self.shipped:
            return Shipped(f"track-{key}")
        existing = key in self.fenced
        if self.fences:
            self.fenced.add(key)
        return Fenced(existing)


@dataclass
class Task:
    """A saga that a worker runs."""

    steps: saga.Saga
    entry: Entry
    card: str
    command: Any = None


class World:
    """A customer's order, or two requests for one cart, the workers that run them, and their calls in flight."""

    def __init__(self, memory: MemoryDatabase, payment: Payment, shipping: Shipping, *, loses_commits: bool) -> None:
        memory.clear()
        self.memory = memory
        self.journal = SqlJournal(memory, "worker")
        self.payment = payment
        self.shipping = shipping
        self.loses_commits = loses_commits
        self.derives_ids = True
        self.has_key = True
        self.price = 5
        self.tasks: list[Task] = []
        self.delayed: list[Callable[[], Any]] = []
        self.callers = {ANN}
        self.answers: set[tuple[Order, str]] = set()
        self.refused = False
        self.orders = 0

    def step(self, choice: int) -> None:
        """Perform one event of the schedule."""
        what, which = choice % 20, choice // 20
        if what == 0:
            self.call(ANN)
        elif what == 1:
            self.memory.seconds += (5.0, 16.0, 31.0, 301.0)[which % 4]
        elif what == 2:
            self.recover()
        elif what == 3 and self.delayed:
            self.delayed.pop(which % len(self.delayed))()
        elif what == 4 and self.loses_commits:
            self.memory.lose((1, 2, 3, 5, 100)[which % 5])
        elif what == 5 and not self.has_key:
            self.call(BEN)
        elif what == 6:
            self.change(which)
        elif self.tasks:
            self.advance(self.tasks[which % len(self.tasks)], what - 7)

    def change(self, which: int) -> None:
        """Change prices, or what shipping accepts."""
        if which % 2:
            self.price = 11 - self.price
        elif self.shipping.has_manifest:
            self.shipping.accepts = not self.shipping.accepts

    def call(self, card: str) -> None:
        """A customer sends a request, for the first time or again, with the card."""
        self.callers.add(card)
        new = self.new_order(card)
        entry = now(self.journal.find(SCOPE))
        if entry is None:
            self.begin(saga.place(), new, card)
        elif entry.fingerprint != card:
            if entry.state in RELEASED_CART:
                self.resume(now(self.journal.reopen(entry, new)), card)
        elif entry.is_placed:
            self.answers.add((entry.order, entry.tracking_id))
        elif entry.state in REFUSED:
            self.refused |= entry.state is not State.NEEDS_REVIEW
        elif entry.state is State.ABANDONED:
            self.resume(now(self.journal.reopen(entry, replace(new, order=entry.order))), card)
        elif entry.state is State.CHARGING and not entry.leased:
            taken = now(self.journal.take_over(entry))
            self.begin(saga.take_over(taken), taken, card)

    def new_order(self, card: str) -> Entry:
        self.orders += 1
        order_id = order_id_of(SCOPE if self.derives_ids else f"{SCOPE}-{self.orders}")
        lines = (OrderLine("mug", 1, Money("EUR", self.price * 10**9)),)
        address = Address(f"{card} street", "Berlin", "", "Germany", 1)
        order = Order(order_id, "user", "a@b.example", "etag", address, lines, Money("EUR", 10**9))
        return Entry(SCOPE, card, order, "")

    def resume(self, taken: Entry | None, card: str) -> None:
        if taken is not None:
            self.begin(saga.charge(resumed=False), taken, card)

    def recover(self) -> None:
        """Run one turn of a recovery loop."""
        for state, failed in product(OPEN, (False, True)):
            for entry in now(self.journal.claim_expired(state, 4, failed=failed)):
                self.begin(saga.recover(entry), entry)

    def begin(self, steps: saga.Saga, held: Entry, card: str = "") -> None:
        if len(self.tasks) < MAX_TASKS:
            task = Task(steps, held, card)
            task.command = next(steps)
            self.tasks.append(task)

    def advance(self, task: Task, fate: int) -> None:
        """Perform the task's command. Fate 1: the worker dies before it, 2: after it; others concern calls to peers."""
        command = task.command
        if fate == 1:
            self.tasks.remove(task)
            return
        if isinstance(command, commands.Wait):
            self.send(task, fate not in {3, 4})
        elif isinstance(
            command, commands.Insert | commands.Update | commands.Restore | commands.StartRemoval | commands.Send
        ):
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
        order, card, claim = task.entry.order, task.card, task.entry.claim
        match command:
            case commands.Charge(retry) if retry and not self.payment.has_ledger:
                return Unsupported
            case commands.Charge():
                return lambda: self.payment.charge(claim.charge_key, order.total, card)
            case commands.Resolve():
                return lambda: self.payment.resolve(claim.charge_key, order.total, task.entry.fingerprint)
            case commands.Void():
                return lambda: self.payment.void(claim.charge_key)
            case commands.ResolveShipment():
                return lambda: self.shipping.resolve(claim.ship_key)
            case _:
                return lambda: self.shipping.ship(claim.ship_key, order)

    def write(self, task: Task, command: Any) -> Any:
        match command:
            case commands.Insert():
                return now(self.journal.insert(task.entry)) is None
            case commands.Update(transition):
                return self.update(task, transition)
            case commands.Restore():
                is_lost = task.entry.is_new and now(self.journal.read(task.entry.order_id)) is None
                return is_lost and now(self.journal.insert(task.entry)) is None
        return None

    def update(self, task: Task, transition: Transition) -> bool:
        entry, after = task.entry, transition.after
        if not now(self.journal.update(entry.claim, transition)):
            return False
        advance = int(after is State.CHARGING)
        task.entry = replace(
            entry,
            state=after,
            attempt=entry.attempt + advance,
            epoch=entry.epoch + advance,
            tracking_id=transition.tracking_id,
        )
        return True

    def send(self, task: Task, result: Any) -> None:
        try:
            task.command = task.steps.send(result)
        except StopIteration as stop:
            self.tasks.remove(task)
            if task.entry.is_placed:
                self.answers.add((task.entry.order, task.entry.tracking_id))  # the caller receives it
            if stop.value is SagaResult.UNFINISHED:
                now(self.journal.release(task.entry.claim, delay_seconds=0, reason=""))

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
            entry: Entry = now(self.journal.find(SCOPE))
            # Every caller has repeated its request since the order was settled.
            rounds = rounds + 1 if entry.state in FINAL else 0
            if rounds == 2:
                break
        self.call(entry.fingerprint)
        return entry

    def settle(self) -> None:
        while self.tasks:
            self.advance(self.tasks[0], 0)

    def settle_all_but(self, task: Task) -> None:
        while others := [other for other in self.tasks if other is not task]:
            self.advance(others[0], 0)

    def check(self, entry: Entry) -> None:
        """Check the invariants against the peers' ledgers."""
        captured, shipped = len(self.payment.captured), len(self.shipping.shipped)
        if captured > 1 or shipped > captured:
            raise Broken(f"{captured} charges, {shipped} shipments")
        for ship_key, order in self.shipping.shipped.items():
            card = self.payment.ledger[ship_key if ":" in ship_key else f"{ship_key}:1"][2]
            if order.address.street_address != f"{card} street":
                raise Broken("shipped to the address of one request, charged to the card of another")
        if entry.state not in FINAL or (captured and entry.state in RELEASED_CART):
            raise Broken(f"ended as {entry.state} with {captured} charges")
        if entry.state is State.SHIPPED and (not shipped or {(entry.order, entry.tracking_id)} != self.answers):
            raise Broken(f"callers received {self.answers}, {shipped} shipments")
        if len(self.answers) > 1:
            raise Broken("callers received different answers")
        if not self.loses_commits:
            self.check_journal(entry)

    def check_journal(self, entry: Entry) -> None:
        """Check what holds if the journal loses nothing: a refusal is final, and few orders need an operator."""
        if self.has_key and self.answers and self.refused:
            raise Broken("callers received different answers")
        if entry.state is State.NEEDS_REVIEW and self.shipping.has_manifest:
            raise Broken("an operator is needed although shipping resolves shipments")


@pytest.fixture(scope="module", autouse=True)
def _close_loop() -> Iterator[None]:
    yield
    LOOP.close()


def now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing but its own tasks."""
    return LOOP.run_until_complete(work)


def run(memory: MemoryDatabase, schedule: bytes, *, without: str = "") -> None:
    """Run one schedule, whose first bytes configure the peers. `without` disables one of the safeguards."""
    kind, other = schedule[0], schedule[1]
    loses_commits = other % 2 == 0
    payment = Payment(
        declined=(frozenset(), frozenset({ANN}))[kind % 8 == 7],
        records_declines=other // 2 % 2 == 0,
        has_ledger=loses_commits or kind // 8 % 8 != 7,
        deduplicates=without != "key",
        fences=without != "fence",
    )
    # Foreign peers cannot resolve what a lost part of the journal has charged and shipped.
    has_manifest = loses_commits or other // 4 % 8 != 7
    shipping = Shipping(
        kind // 64 % 4 != 3, has_manifest, forgets=not loses_commits, fences=without != "shipping fence"
    )
    memory.checks_claim = without != "claim"
    world = World(memory, payment, shipping, loses_commits=loses_commits)
    world.derives_ids = without != "derived id"
    world.has_key = other // 32 % 2 == 0
    for choice in b"\0" + schedule[2:]:
        world.step(choice)
    world.check(world.finish())


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> MemoryDatabase:
    path: Path = tmp_path_factory.mktemp("schema") / "checkout.db"
    migrate(f"sqlite:///{path}", MIGRATIONS)
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
@pytest.mark.parametrize("safeguard", ["key", "derived id", "fence", "shipping fence", "claim"])
def test_an_invariant_breaks_without(memory: MemoryDatabase, safeguard: str) -> None:
    @schedules(20_000, Phase.generate)
    @given(st.binary(min_size=8, max_size=48))
    def holds(schedule: bytes) -> None:
        run(memory, schedule, without=safeguard)

    with pytest.raises(Broken):
        holds()


def world_of(memory: MemoryDatabase, *, declines: bool = False, records_declines: bool = True) -> World:
    """Return a shop with our own peers, whose journal may lose commits."""
    declined = frozenset({ANN}) if declines else frozenset()
    payment = Payment(declined, records_declines, has_ledger=True)
    return World(memory, payment, Shipping(accepts=True, has_manifest=True, forgets=False), loses_commits=True)


def advance_until(world: World, task: Task, after: State) -> None:
    """Run the task up to the update to this state."""
    while not (isinstance(task.command, commands.Update) and task.command.transition.after is after):
        world.advance(task, 0)


def test_a_card_is_not_charged_behind_the_fence_of_a_refusal(memory: MemoryDatabase) -> None:
    world = world_of(memory, declines=True)
    world.call(ANN)
    (refusing,) = world.tasks
    advance_until(world, refusing, State.DECLINED)
    world.payment.declined = frozenset()
    memory.seconds += 16
    world.call(ANN)
    world.settle_all_but(refusing)
    assert world.payment.captured == []


def test_a_refusal_is_not_recorded_when_the_journal_has_lost_its_order(memory: MemoryDatabase) -> None:
    world = world_of(memory, declines=True, records_declines=False)
    world.call(ANN)
    (refusing,) = world.tasks
    advance_until(world, refusing, State.DECLINED)
    memory.lose(100)
    world.payment.declined = frozenset()
    world.call(ANN)
    world.settle_all_but(refusing)
    memory.lose(100)
    world.settle()
    world.check(world.finish())


def test_an_order_is_not_voided_while_a_lost_attempt_is_charged(memory: MemoryDatabase) -> None:
    world = world_of(memory)
    world.has_key = world.shipping.accepts = False
    world.call(ANN)
    (voiding,) = world.tasks
    advance_until(world, voiding, State.VOIDING)
    world.advance(voiding, 2)
    commits = memory.commits
    memory.seconds += 31
    world.recover()
    world.settle()
    world.shipping.accepts = True
    world.price += 1
    world.call(BEN)
    world.advance(world.tasks[0], 2)
    assert len(world.payment.captured) == 1
    memory.lose(memory.commits - commits)
    world.callers = {ANN}
    world.check(world.finish())
