"""The saga under thousands of schedules: workers die at any step, calls are lost, delayed or duplicated, leases expire.

In half of them the journal also loses commits: any number of the latest ones, at any moment. The journal is the real
one, on SQLite in memory with a simulated clock. Payment and shipping are models that follow the contract: one effect
per key, none behind its fence, and an error for a key that is used with other content.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from chassis.sql.url import sqlite_path
from checkout_service import commands
from checkout_service.domain import RELEASED_CART, SETTLED_DISMISSED, SETTLED_REFUNDED, SETTLED_SHIPPED, Refusal, State
from checkout_service.ports import Entry
from shop_kit.saga_peers import PaymentModel, ShippingModel
from shop_kit.sagas import ANN, BEN, FINAL, ForgetfulDatabase, Task, World

SCHEDULES = 1_000
DECISIONS = [
    Refusal("FailedPrecondition", reason, "") for reason in (SETTLED_REFUNDED, SETTLED_SHIPPED, SETTLED_DISMISSED)
]


class Broken(AssertionError):
    """An invariant is violated."""


def assert_invariants(world: World, entry: Entry) -> None:
    """Check the invariants against the peers' ledgers."""
    captured, shipped = len(world.payment.captured), len(world.shipping.shipped)
    if captured > 1 or shipped > captured:
        raise Broken(f"{captured} charges, {shipped} shipments")
    for ship_key, parcel in world.shipping.shipped.items():
        _, charged = world.payment.ledger[ship_key if ":" in ship_key else f"{ship_key}:1"]
        if charged is None or parcel.request != charged.request:
            raise Broken("shipped to the address of one request, charged to the card of another")
    if entry.state not in FINAL or (captured and entry.state in RELEASED_CART):
        raise Broken(f"ended as {entry.state} with {captured} charges")
    # Nobody knows what such a journal has lost: a void that is on its way, or an answer with other prices.
    misled = world.loses_commits and DECISIONS[1] in world.decisions
    if (entry.state is State.SETTLED and entry.reason == SETTLED_REFUNDED and captured + shipped) or (
        entry.state is State.SHIPPED and not captured and not misled
    ):
        raise Broken(f"{entry.state} with {captured} charges, {shipped} shipments")
    if (
        entry.state is State.SHIPPED
        and DECISIONS[1] not in world.decisions
        and (not shipped or {(entry.order, entry.tracking_id)} != world.answers)
    ):
        raise Broken(f"callers received {world.answers}, {shipped} shipments")
    if len(world.answers) > 1 and not misled:
        raise Broken("callers received different answers")
    if not world.loses_commits:
        assert_invariants_of_a_journal_without_losses(world, entry)


def assert_invariants_of_a_journal_without_losses(world: World, entry: Entry) -> None:
    """Check what holds if the journal loses nothing: a refusal is final, and few orders need an operator."""
    if world.has_key and world.answers and world.refused:
        raise Broken("callers received different answers")
    resolves = world.payment.has_ledger and world.shipping.has_manifest
    if entry.state is State.NEEDS_REVIEW and resolves and not world.decisions:
        raise Broken("an operator is needed although payment and shipping resolve what they did")


def step(world: World, choice: int) -> None:
    """Perform one event of the schedule."""
    what, which = choice % 20, choice // 20
    if what == 0:
        world.call(ANN)
    elif what == 1:
        world.memory.seconds += (5.0, 16.0, 31.0, 301.0)[which % 4]
    elif what == 2:
        world.recover()
    elif what == 3 and world.delayed:
        world.delayed.pop(which % len(world.delayed))()
    elif what == 4 and world.loses_commits:
        world.memory.lose((1, 2, 3, 5, 100)[which % 5])
    elif what == 5:
        world.decide(DECISIONS[which % 3]) if world.has_key else world.call(BEN)
    elif what == 6 and which % 2:
        world.price = 11 - world.price
    elif what == 6 and world.shipping.has_manifest:
        world.shipping.accepts = not world.shipping.accepts
    elif what > 6 and world.tasks:
        world.advance(world.tasks[which % len(world.tasks)], what - 7)


def run(memory: ForgetfulDatabase, schedule: bytes) -> None:
    """Run one schedule, whose first bytes configure the peers."""
    kind, other = schedule[0], schedule[1]
    loses_commits = other % 2 == 0
    payment = PaymentModel(
        declined=(frozenset(), frozenset({ANN}))[kind % 8 == 7],
        records_declines=other // 2 % 2 == 0,
        has_ledger=loses_commits or kind // 8 % 8 != 7,
    )
    # Foreign peers cannot resolve what a lost part of the journal has charged and shipped.
    has_manifest = loses_commits or other // 4 % 8 != 7
    shipping = ShippingModel(kind // 64 % 4 != 3, has_manifest, forgets=not loses_commits)
    world = World(memory, payment, shipping, loses_commits=loses_commits)
    world.has_key = other // 32 % 2 == 0
    for choice in b"\0" + schedule[2:]:
        step(world, choice)
    assert_invariants(world, world.finish())


@pytest.fixture
def memory(sqlite_url: str) -> Iterator[ForgetfulDatabase]:
    """A database with an empty journal."""
    database = ForgetfulDatabase(Path(str(sqlite_path(sqlite_url))).read_bytes())
    with closing(database.connection):
        yield database


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in range(1, 10))])
def test_an_order_survives_every_schedule(memory: ForgetfulDatabase, part: int) -> None:  # noqa: ARG001 - for xdist
    ran = 0

    @settings(
        max_examples=SCHEDULES,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=8, max_size=48))
    @example(bytes.fromhex("bb4c7d28774172636844eb471018dc8d2aefc2a705310c6c"))  # the decision after a lost attempt
    def holds(schedule: bytes) -> None:
        nonlocal ran
        ran += 1
        run(memory, schedule)

    holds()
    assert ran >= SCHEDULES


def world_of(memory: ForgetfulDatabase, *, declines: bool = False, records_declines: bool = True) -> World:
    """Return a shop with our own peers, whose journal may lose commits."""
    payment = PaymentModel(frozenset({ANN}) if declines else frozenset(), records_declines)
    return World(memory, payment, ShippingModel(), loses_commits=True)


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
    world.settle(all_but=refusing)
    assert world.payment.captured == []


def test_a_refusal_is_not_recorded_when_the_journal_has_lost_its_order(memory: ForgetfulDatabase) -> None:
    world = world_of(memory, declines=True, records_declines=False)
    world.call(ANN)
    (refusing,) = world.tasks
    advance_until(world, refusing, State.DECLINED)
    memory.lose(100)
    world.payment.declined = frozenset()
    world.call(ANN)
    world.settle(all_but=refusing)
    memory.lose(100)
    world.settle()
    assert_invariants(world, world.finish())


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
    assert_invariants(world, world.finish())
