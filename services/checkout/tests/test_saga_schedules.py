"""The saga under thousands of schedules: workers die at any step, calls are lost, delayed or duplicated, leases expire.

In half of them the journal also loses commits: any number of the latest ones, at any moment. The journal is the real
one, on SQLite in memory with a simulated clock. Payment and shipping are models that follow the contract: one effect
per key, none behind its fence, and an error for a key that is used with other content.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from chassis.sql.database import Row, Statement
from checkout_service import commands, saga
from checkout_service.commands import InDoubt
from checkout_service.domain import REFUSED, RELEASED_CART, Order, State
from checkout_service.ports import Entry
from checkout_service.saga import SagaResult
from shop_kit import sagas
from shop_kit.saga_peers import PEER_COMMANDS, Payment, Shipping
from shop_kit.sagas import MemoryDatabase, Task, migrated_schema, now

SCHEDULES = 2_000
MAX_TASKS = 8
FINAL = REFUSED | {State.SHIPPED}
ANN, BEN = "Ann's card", "Ben's card"


class Broken(AssertionError):
    """An invariant is violated."""


class ForgetfulDatabase(MemoryDatabase):
    """A database that can lose its latest commits.

    Everything is one transaction, in which a savepoint stands for a commit.
    """

    commits = 0

    @override
    async def write(self, *batch: Statement) -> list[list[Row]]:
        rows = await super().write(*batch)
        self.commits += 1
        self.connection.execute(f"SAVEPOINT commit_{self.commits}")
        return rows

    def clear(self) -> None:
        self.seconds = 1000.0
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")
        self.connection.execute("SAVEPOINT commit_0")
        self.commits = 0

    def lose(self, count: int) -> None:
        """Lose up to this number of the latest commits."""
        self.commits = max(self.commits - count, 0)
        self.connection.execute(f"ROLLBACK TO commit_{self.commits}")


class World(sagas.World):
    """A customer's order, or two requests for one cart, the workers that run them, and their calls in flight."""

    def __init__(self, memory: ForgetfulDatabase, payment: Payment, shipping: Shipping, *, loses_commits: bool) -> None:
        memory.clear()
        super().__init__(memory, payment, shipping)
        self.memory = memory
        self.loses_commits = loses_commits
        self.has_key = True
        self.price = 5
        self.tasks: list[Task] = []
        self.delayed: list[Callable[[], Any]] = []
        self.callers = {ANN}
        self.answers: set[tuple[Order, str]] = set()
        self.refused = False

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
        new, entry = self.new_order(card, self.price), self.entry()
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
        for entry in self.claim_expired(4):
            self.begin(saga.recover(entry), entry)

    def begin(self, steps: saga.Saga, held: Entry) -> None:
        if len(self.tasks) < MAX_TASKS:
            self.tasks.append(Task(steps, held))

    def advance(self, task: Task, fate: int) -> None:
        """Perform the task's command. Fate 1: the worker dies before it, 2: after it; others concern calls to peers."""
        if fate == 1:
            self.tasks.remove(task)
        elif isinstance(task.command, commands.Wait):
            self.send(task, fate not in {3, 4})
        elif isinstance(task.command, PEER_COMMANDS):
            self.exchange(task, self.request(task), fate)
        else:
            result = self.perform(task)
            self.tasks.remove(task) if fate == 2 else self.send(task, result)

    def exchange(self, task: Task, request: Callable[[], Any], fate: int) -> None:
        """Call a peer. Fate 3: the request is lost, 4: the reply is lost, 5: the request is delayed, 6: duplicated."""
        if fate in {5, 6}:
            self.delayed.append(request)
        result = InDoubt("") if fate in {3, 5} else request()
        if fate == 2:
            self.tasks.remove(task)
        else:
            self.send(task, InDoubt("") if fate == 4 else result)

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
            entry = self.entry()
            assert entry is not None
            # Every caller has repeated its request since the order was settled.
            rounds = rounds + 1 if entry.state in FINAL else 0
            if rounds == 2:
                break
        assert entry is not None
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
        for ship_key, parcel in self.shipping.shipped.items():
            _, charged = self.payment.ledger[ship_key if ":" in ship_key else f"{ship_key}:1"]
            if charged is None or parcel.request != charged.request:
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


def run(memory: ForgetfulDatabase, schedule: bytes) -> None:
    """Run one schedule, whose first bytes configure the peers."""
    kind, other = schedule[0], schedule[1]
    loses_commits = other % 2 == 0
    payment = Payment(
        declined=(frozenset(), frozenset({ANN}))[kind % 8 == 7],
        records_declines=other // 2 % 2 == 0,
        has_ledger=loses_commits or kind // 8 % 8 != 7,
    )
    # Foreign peers cannot resolve what a lost part of the journal has charged and shipped.
    has_manifest = loses_commits or other // 4 % 8 != 7
    shipping = Shipping(kind // 64 % 4 != 3, has_manifest, forgets=not loses_commits)
    world = World(memory, payment, shipping, loses_commits=loses_commits)
    world.has_key = other // 32 % 2 == 0
    for choice in b"\0" + schedule[2:]:
        world.step(choice)
    world.check(world.finish())


@pytest.fixture(scope="module")
def memory() -> Iterator[ForgetfulDatabase]:
    database = ForgetfulDatabase(migrated_schema())
    yield database
    database.connection.close()


def schedules(count: int, *phases: Phase) -> Callable[[Any], Any]:
    checks = list(HealthCheck)
    return settings(max_examples=count, deadline=None, database=None, phases=phases, suppress_health_check=checks)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3, 4))])
def test_an_order_survives_every_schedule(memory: ForgetfulDatabase, part: int) -> None:  # noqa: ARG001 - for xdist
    ran = 0

    @schedules(SCHEDULES, Phase.generate, Phase.shrink)
    @given(st.binary(min_size=8, max_size=48))
    def holds(schedule: bytes) -> None:
        nonlocal ran
        ran += 1
        run(memory, schedule)

    holds()
    assert ran >= SCHEDULES


def world_of(memory: ForgetfulDatabase, *, declines: bool = False, records_declines: bool = True) -> World:
    """Return a shop with our own peers, whose journal may lose commits."""
    payment = Payment(frozenset({ANN}) if declines else frozenset(), records_declines)
    return World(memory, payment, Shipping(), loses_commits=True)


def advance_until(world: World, task: Task, after: State) -> None:
    """Run the task up to the update to this state."""
    while not (isinstance(task.command, commands.Update) and task.command.transition.after is after):
        world.advance(task, 0)


def test_a_card_is_not_charged_behind_the_fence_of_a_refusal(memory: ForgetfulDatabase) -> None:
    world = world_of(memory, declines=True)
    world.call(ANN)
    (refusing,) = world.tasks
    advance_until(world, refusing, State.DECLINED)
    world.payment.declined = frozenset()
    memory.seconds += 16
    world.call(ANN)
    world.settle_all_but(refusing)
    assert world.payment.captured == []


def test_a_refusal_is_not_recorded_when_the_journal_has_lost_its_order(memory: ForgetfulDatabase) -> None:
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


def test_an_order_is_not_voided_while_a_lost_attempt_is_charged(memory: ForgetfulDatabase) -> None:
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
