"""One suite for the journal on SQLite and on PostgreSQL."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from chassis.errors import FieldViolation
from chassis.sql.opening import open_database
from chassis.values.money import MAX_UNITS, Money
from chassis.values.paging import Position
from checkout_service.domain import NEEDS_OPERATOR, OPEN, RELEASED_CART, Refusal, State, Transition
from checkout_service.journal import statements
from checkout_service.journal.opening import open_journal
from checkout_service.journal.sql import Journal
from checkout_service.ports import EMAIL, EMPTY_CART, Entry, JournalUnavailable, OutboxItem, Statistics
from shop_kit.databases import execute
from shop_kit.orders import new_order

MoveClock = Callable[[float], None]
RunSql = Callable[[str], object]
Lose = Callable[[], None]

SHIPPED = Transition(State.CHARGING, State.SHIPPED, "transaction", "track-1")
DECLINED = Transition(
    State.CHARGING,
    State.DECLINED,
    refusal=Refusal("InvalidArgument", "CARD_EXPIRED", "expired", (FieldViolation("credit_card", "is expired"),)),
)

NEXT_ATTEMPT = Transition(State.CHARGING, State.CHARGING)

DAY = 86_400
TIMES = [("outbox", "due_at"), *(("orders", column) for column in ("lease_until", "created_at", "updated_at"))]


@pytest.fixture
def database_url(journal_url: str) -> str:
    """Either database."""
    return journal_url


@pytest.fixture
def move_clock(database_url: str, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch) -> MoveClock:
    """Move the clock of the journal by seconds: on PostgreSQL by moving the times of all rows the other way.

    It comes before `journal`: SQLite finds the clock when it is opened.
    """
    passed, real = 0.0, time.time

    def move_by_rows(seconds: float) -> None:
        for table, column in TIMES:
            run_sql(f"UPDATE {table} SET {column} = {column} - ({seconds})")  # noqa: S608 - constants

    def move(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    if database_url.startswith("postgresql"):
        return move_by_rows
    monkeypatch.setattr(time, "time", lambda: real() + passed)
    return move


def existing(entry: Entry | None) -> Entry:
    assert entry is not None
    return entry


async def inserted(journal: Journal, new: Entry) -> Entry:
    assert await journal.insert(new) is None
    return new


async def shipped(journal: Journal, new: Entry) -> str:
    await inserted(journal, new)
    assert await journal.update(new, SHIPPED)
    return new.order_id


def item_of(order_id: str, kind: str, failures: int = 0) -> OutboxItem:
    return OutboxItem(kind, new_order(order_id=order_id), failures)


async def done(journal: Journal, new: Entry) -> str:
    order_id = await shipped(journal, new)
    assert await journal.complete([item_of(order_id, kind) for kind in (EMAIL, EMPTY_CART)]) == [order_id]
    return order_id


async def ended(journal: Journal, new: Entry, state: State) -> Entry:
    """Record an order and bring it into a state, whatever its own transitions are."""
    await inserted(journal, new)
    if state is not State.CHARGING:
        assert await journal.update(new, Transition(State.CHARGING, state, step="ended"))
    return existing(await journal.read(new.order_id))


def settled(entry: Entry, after: State = State.SETTLED, step: str = "refunded") -> Transition:
    """Return the transition that an operator decides."""
    return Transition(entry.state, after, tracking_id="R-7", step=f"settled_{step}", detail="eve: R-7")


async def expire(journal: Journal, order_id: str) -> None:
    entry = existing(await journal.read(order_id))
    await journal.release(entry, delay_seconds=-1, reason="test")


async def claim_orders(journal: Journal, limit: int = 10) -> list[Entry]:
    claims = [await journal.claim_expired(state, limit, failed=failed) for state in OPEN for failed in (False, True)]
    return [entry for claimed in claims for entry in claimed]


async def claim_items(journal: Journal, limit: int = 10) -> list[OutboxItem]:
    kinds = (EMAIL, EMPTY_CART)
    claims = [await journal.claim_outbox(kind, limit, failed=failed) for kind in kinds for failed in (True, False)]
    return [item for claimed in claims for item in claimed]


@pytest.mark.parametrize("changed", [{}, {"shipping_cost": Money.of("EUR", MAX_UNITS, 999_999_999), "lines": ()}])
async def test_a_new_order_is_charging_and_leased_also_when_it_is_inserted_again(
    journal: Journal, changed: dict[str, Any]
) -> None:
    new = new_order(**changed)
    assert [await journal.insert(new) for _ in range(2)] == [None, None]
    entry = existing(await journal.find("scope"))
    assert entry == replace(new, created_at=entry.created_at, updated_at=entry.updated_at)
    assert (entry.state, entry.leased, entry.is_new, entry.is_placed) == (State.CHARGING, True, False, False)


async def test_a_superseded_worker_changes_nothing_and_the_history_names_every_worker(
    journal: Journal, other_journal: Journal
) -> None:
    new = await inserted(journal, new_order())
    await expire(journal, new.order_id)
    assert len(await claim_orders(other_journal)) == 1
    assert not await journal.update(new, SHIPPED)
    entry = existing(await journal.find("scope"))
    assert (entry.state, entry.epoch) == (State.CHARGING, 2)
    assert await journal.outbox_of([entry.order_id]) == {entry.order_id: {}}
    history = await journal.history(new.order_id)
    assert [(event["step"], event["epoch"], event["detail"]) for event in history] == [
        ("inserted", 1, "one"),
        ("left", 1, "test"),
        ("taken_over", 2, "two"),
    ]


async def test_an_update_that_fails_half_way_changes_nothing(journal: Journal, run_sql: RunSql) -> None:
    new = await inserted(journal, new_order())
    run_sql("ALTER TABLE outbox RENAME TO renamed")
    with pytest.raises(JournalUnavailable):
        await journal.update(new, SHIPPED)
    run_sql("ALTER TABLE renamed RENAME TO outbox")
    found = existing(await journal.read(new.order_id))
    assert found.state is State.CHARGING
    assert [event["step"] for event in await journal.history(new.order_id)] == ["inserted"]


async def test_a_repeated_update_succeeds(journal: Journal) -> None:
    new = new_order()
    order_id = await shipped(journal, new)
    assert await journal.update(new, SHIPPED)
    assert not await journal.update(new, DECLINED)
    assert len(await journal.history(order_id)) == 3


@pytest.mark.parametrize("refused_as", [State.DECLINED, State.VOIDED])
async def test_a_pending_refusal_is_of_the_next_attempt_until_charged(journal: Journal, refused_as: State) -> None:
    new = await inserted(journal, new_order())
    assert await journal.update(new, replace(NEXT_ATTEMPT, refusal=DECLINED.refusal, refused_as=refused_as))
    entry = existing(await journal.find("scope"))
    assert (entry.state, entry.refusal, entry.refused_as) == (State.CHARGING, DECLINED.refusal, refused_as)
    assert (entry.attempt, entry.epoch, entry.owner) == (2, 2, new.owner)
    assert not await journal.update(new, SHIPPED)
    assert await journal.update(entry, SHIPPED)
    entry = existing(await journal.find("scope"))
    assert (entry.state, entry.refusal, entry.refused_as) == (State.SHIPPED, None, None)


async def test_a_leased_order_is_not_taken_over_even_if_the_clock_moves_by_less_than_a_lease(
    move_clock: MoveClock, journal: Journal, other_journal: Journal
) -> None:
    await journal.insert(new_order())
    for seconds in (0, -60):
        move_clock(seconds)
        assert await claim_orders(other_journal) == []
        assert await other_journal.take_over(existing(await journal.find("scope"))) is None


async def test_an_expired_order_is_claimed_by_one_replica(journal: Journal, other_journal: Journal) -> None:
    for number in range(8):
        new = new_order(f"scope-{number}")
        await journal.insert(new)
        await expire(journal, new.order_id)
    claims = await asyncio.gather(*(claim_orders(each, 3) for each in (journal, other_journal) * 4))
    taken = [entry.order_id for claim in claims for entry in claim]
    taken += [entry.order_id for entry in await claim_orders(journal, 100)]
    assert len(taken) == len(set(taken)) == 8


async def test_failed_recovery_attempts_are_counted_until_the_state_changes(journal: Journal) -> None:
    new = await inserted(journal, new_order())
    for failures in range(1, 4):
        await expire(journal, new.order_id)
        (entry,) = await claim_orders(journal)
        assert (entry.failures, entry.epoch) == (failures, failures + 1)
    await journal.update(entry, SHIPPED)
    assert existing(await journal.read(new.order_id)).failures == 0


async def test_a_released_order_is_not_claimed_before_its_delay(journal: Journal) -> None:
    new = await inserted(journal, new_order())
    await journal.release(new, delay_seconds=60, reason="PEER_DOWN")
    assert await claim_orders(journal) == []
    assert existing(await journal.find("scope")).reason == "PEER_DOWN"


@pytest.mark.parametrize("state", sorted(RELEASED_CART))
async def test_a_cart_can_be_ordered_anew_after_an_order_that_released_it(journal: Journal, state: State) -> None:
    entry = await ended(journal, new_order(), state)
    again = new_order(fingerprint="other", email="bob@mail.example")
    reopened = existing(await journal.reopen(entry, again))
    assert (reopened.state, reopened.attempt, reopened.epoch, reopened.leased) == (
        State.CHARGING,
        2,
        entry.epoch + 1,
        True,
    )
    assert (reopened.order, reopened.fingerprint, reopened.refusal) == (again.order, "other", None)


@pytest.mark.parametrize("state", sorted(frozenset(State) - RELEASED_CART - {State.DONE, State.SETTLED}))
async def test_an_order_that_holds_its_cart_is_not_reopened(journal: Journal, state: State) -> None:
    entry = await ended(journal, new_order(), state)
    assert await journal.reopen(entry, new_order()) is None


@pytest.mark.parametrize("other", [("first", "other etag"), ("second", "etag")])
async def test_a_cart_has_one_order_at_a_time_and_so_has_a_scope(journal: Journal, other: tuple[str, str]) -> None:
    first = await inserted(journal, new_order("first", cart_generation="etag"))
    scope, etag = other
    holder = existing(await journal.insert(new_order(scope, cart_generation=etag)))
    assert holder.order_id == first.order_id


async def test_carts_without_etag_have_any_number_of_orders(journal: Journal) -> None:
    for scope in ("first", "second"):
        assert await journal.insert(new_order(scope, cart_generation="")) is None


async def test_one_of_many_concurrent_orders_of_a_cart_wins(journal: Journal, other_journal: Journal) -> None:
    def order_of_the_cart(scope: str) -> Entry:
        return new_order(scope, cart_generation="etag")

    abandoned = [await ended(journal, order_of_the_cart(scope), State.ABANDONED) for scope in "abcd"]
    replicas = (journal, other_journal)
    inserts = [replica.insert(order_of_the_cart(f"new-{number}")) for number, replica in enumerate(replicas)]
    reopenings = [replica.reopen(entry, order_of_the_cart("")) for entry in abandoned for replica in replicas]
    holders, reopened = await asyncio.gather(asyncio.gather(*inserts), asyncio.gather(*reopenings))
    assert holders.count(None) + len([one for one in reopened if one]) == 1


async def test_an_epoch_that_is_handed_out_twice_belongs_to_one_worker(journal: Journal, lose: Lose) -> None:
    superseded = await inserted(journal, new_order())
    lose()
    await inserted(journal, new_order())
    assert not await journal.update(superseded, SHIPPED)


async def test_a_restarted_worker_releases_only_its_own_orders(journal: Journal, other_journal: Journal) -> None:
    mine = await inserted(journal, new_order("mine"))
    await inserted(other_journal, new_order("others"))
    await journal.release_own()
    assert [entry.order_id for entry in await claim_orders(journal)] == [mine.order_id]


async def test_an_order_is_found_by_its_cart_until_it_is_refused(journal: Journal) -> None:
    new = await inserted(journal, new_order())
    assert existing(await journal.find_of_cart("user", new.order.cart_generation)).order_id == new.order_id
    await journal.update(new, DECLINED)
    assert await journal.find_of_cart("user", new.order.cart_generation) is None


async def test_a_completion_waits_for_a_concurrent_one_of_the_same_order(postgres_url: str) -> None:
    async with open_journal(postgres_url, worker="one") as journal:
        order_id = await shipped(journal, new_order())
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            # The other replica has completed the cart, and has not committed yet.
            await other.execute("SELECT 1 FROM orders WHERE order_id = %s FOR UPDATE", (order_id,))
            await other.execute("DELETE FROM outbox WHERE kind = 'empty_cart'")
            settling = asyncio.create_task(journal.complete([item_of(order_id, EMAIL)]))
            await until_blocked(settling, other)
            await other.commit()
        assert await settling == [order_id]


async def test_two_replicas_at_once_complete_each_order_once(postgres_url: str) -> None:
    async with open_journal(postgres_url, worker="one") as one, open_journal(postgres_url, worker="two") as two:
        order_ids = [await shipped(one, new_order(f"scope-{number}")) for number in range(10)]
        sent = [item_of(order_id, kind) for order_id in order_ids for kind in (EMAIL, EMPTY_CART)]
        parts = [(journal, sent[start::3][::step]) for journal in (one, two) for start in range(3) for step in (1, -1)]
        done = await asyncio.gather(*(journal.complete(part) for journal, part in parts))
        assert sorted(order_id for each in done for order_id in each) == sorted(order_ids)
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert execute(postgres_url, query) == [(0,)]


async def test_a_shipped_order_whose_outbox_is_empty_is_completed(journal: Journal, run_sql: RunSql) -> None:
    order_id = await shipped(journal, new_order())
    run_sql("DELETE FROM outbox")
    await shipped(journal, new_order("with an outbox"))
    assert await journal.complete_leftover() == [order_id]
    assert [event["step"] for event in await journal.history(order_id)][-1] == "done"
    assert await journal.complete_leftover() == []


async def test_sqlite_asks_for_the_time_once_a_statement(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    clock = time.time

    def now() -> float:
        calls.append(clock())
        return calls[-1]

    monkeypatch.setattr(time, "time", now)
    async with open_journal(sqlite_url, worker="one") as journal:
        order_ids = [await shipped(journal, new_order(f"scope-{number}")) for number in range(5)]
        sent = [item_of(order_id, kind) for order_id in order_ids for kind in (EMAIL, EMPTY_CART)]
        calls.clear()
        assert sorted(await journal.complete(sent)) == sorted(order_ids)
        assert len(calls) == len([statements.SENT_EVENTS, statements.SET_DONE, statements.DONE_EVENTS])


async def test_orders_that_the_database_rejects_do_not_keep_others_from_being_done(sqlite_url: str) -> None:
    async with open_journal(sqlite_url, worker="one") as journal:
        order_ids = [await shipped(journal, new_order(scope)) for scope in "ab"]
        condition = f"NEW.state = 'DONE' AND NEW.order_id = '{order_ids[0]}'"
        body = f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'no'); END"
        await asyncio.to_thread(execute, sqlite_url, f"CREATE TRIGGER refuse BEFORE UPDATE ON orders {body}")
        sent = [item_of(order_id, kind) for order_id in order_ids for kind in (EMAIL, EMPTY_CART)]
        assert await journal.complete(sent) == order_ids[1:]


async def test_an_outbox_is_reserved_for_the_worker_that_shipped_its_order_and_then_claimed_once(
    move_clock: MoveClock, journal: Journal, other_journal: Journal
) -> None:
    new = new_order()
    order_id = await shipped(journal, new)
    entry = existing(await journal.read(order_id))
    assert (entry.is_placed, entry.state, entry.tracking_id) == (True, State.SHIPPED, "track-1")
    assert await journal.outbox_of([order_id]) == {order_id: {EMAIL: False, EMPTY_CART: False}}
    assert await claim_items(journal) == []
    move_clock(60)
    claims = await asyncio.gather(*(claim_items(each, 1) for each in (journal, other_journal) * 4))
    items = [item for claim in claims for item in claim] + await claim_items(journal)
    assert sorted(item.kind for item in items) == [EMAIL, EMPTY_CART]
    assert {(item.entry.order, item.entry.tracking_id, item.failures) for item in items} == {(new.order, "track-1", 1)}


async def test_workers_that_look_for_work_at_once_share_a_read(
    move_clock: MoveClock, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shipped(journal, new_order())
    move_clock(60)
    reads, read = [], journal._database.read

    async def record(text: str, parameters: Any) -> Any:
        reads.append(text)
        return await read(text, parameters)

    monkeypatch.setattr(journal._database, "read", record)
    _, *claimed = await asyncio.gather(
        *(journal.claim_expired(state, 10, failed=failed) for state in OPEN for failed in (False, True)),
        *(journal.claim_outbox(kind, 10, failed=False) for kind in (EMAIL, EMPTY_CART)),
    )
    assert reads.count(statements.DUE_QUEUES) == 1
    assert list(map(bool, claimed)) == [*[False] * (2 * len(OPEN) - 1), True, True]


async def test_a_postponed_item_is_not_claimed_before_its_delay(move_clock: MoveClock, journal: Journal) -> None:
    await shipped(journal, new_order())
    move_clock(60)
    items = await claim_items(journal)
    await journal.postpone(items[0], delay_seconds=-1, reason="DOWN")
    await journal.postpone(items[1], delay_seconds=60, reason="DOWN")
    assert [(item.kind, item.failures) for item in await claim_items(journal)] == [(items[0].kind, 2)]


async def test_a_dead_letter_is_not_claimed_until_it_is_requeued_as_if_it_had_never_failed(
    move_clock: MoveClock, journal: Journal
) -> None:
    order_id = await shipped(journal, new_order())
    await journal.set_dead(order_id, EMAIL, reason="NO_SUCH_HOST")
    move_clock(60)
    assert [item.kind for item in await claim_items(journal)] == [EMPTY_CART]
    assert await journal.outbox_of([order_id]) == {order_id: {EMAIL: True, EMPTY_CART: False}}
    assert await journal.complete([item_of(order_id, EMPTY_CART, 1)]) == []
    assert existing(await journal.read(order_id)).state is State.SHIPPED
    assert await journal.requeue(order_id) == [EMAIL]
    assert [(item.kind, item.failures) for item in await claim_items(journal)] == [(EMAIL, 1)]
    assert await journal.requeue(order_id) == []
    await journal.set_dead(order_id, EMAIL, reason="MAILBOX_FULL")
    await journal.requeue(order_id)
    steps = [(event["step"], event["detail"]) for event in await journal.history(order_id)]
    assert steps[4:] == [("email_dead_letter", "MAILBOX_FULL"), ("requeued", "one")]


async def test_a_completion_does_not_delete_a_confirmation_that_is_to_be_sent_again(journal: Journal) -> None:
    order_id = await shipped(journal, new_order())
    sent = [item_of(order_id, EMAIL), item_of(order_id, EMPTY_CART)]
    for _ in range(7):
        await journal.requeue(order_id, confirm_again=True)
        assert await journal.complete(sent) == []
        (item,) = await claim_items(journal)
        sent = [item_of(order_id, EMAIL, item.failures)]
    assert await journal.complete(sent) == [order_id]


async def test_an_order_without_outbox_is_done_and_its_history_has_every_step_in_order(journal: Journal) -> None:
    order_id = await shipped(journal, new_order())
    assert await journal.complete([item_of(order_id, EMAIL)]) == []
    assert await journal.complete([item_of(order_id, EMPTY_CART)]) == [order_id]
    history = await journal.history(order_id)
    steps = ["inserted", "charged", "shipped", "email_queued", "cart_emptied", "done"]
    assert [event["step"] for event in history] == steps
    assert history[-1]["state"] == existing(await journal.read(order_id)).state == State.DONE
    assert [event["at"] for event in history] == sorted(event["at"] for event in history)


# Retention

FOUND_BEFORE = "SELECT order_id, created_at AS at FROM orders LIMIT :limit"  # a query that finds what has since changed


async def test_orders_that_are_old_and_did_not_change_recently_are_deleted_in_batches_with_their_history(
    move_clock: MoveClock, journal: Journal
) -> None:
    changed = await inserted(journal, new_order("changed"))
    old, _ = [await done(journal, new_order(scope)) for scope in ("old", "as old")]
    move_clock(2 * DAY)
    young = await done(journal, new_order("young"))
    await journal.update(changed, DECLINED)
    assert [await journal.deletions.delete_old(time.time() - DAY, limit=1) for _ in range(3)] == [1, 1, 0]
    assert await journal.deletions.complete_since() == pytest.approx(time.time() - 2 * DAY, abs=60)
    left = await journal.list_orders([], stuck=False, limit=10)
    assert [entry.order_id for entry in left] == [young, changed.order_id]
    assert (await journal.history(old), len(await journal.history(young))) == ([], 6)
    move_clock(2 * DAY)
    assert await journal.deletions.delete_old(time.time() - DAY, limit=1) == 1  # it changed after it was created
    assert await journal.deletions.complete_since() == pytest.approx(time.time() - 2 * DAY, abs=60)


@pytest.mark.parametrize("state", [*OPEN, State.SHIPPED, State.NEEDS_REVIEW, State.SETTLED])
async def test_an_unfinished_order_is_not_deleted(move_clock: MoveClock, journal: Journal, state: State) -> None:
    await ended(journal, new_order(), state)
    move_clock(2 * DAY)
    assert await journal.deletions.delete_old(time.time() - DAY, limit=10) == (state is State.SETTLED)


async def test_an_order_whose_confirmation_is_sent_again_is_not_deleted(
    move_clock: MoveClock, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.requeue(await done(journal, new_order()), confirm_again=True)
    move_clock(2 * DAY)
    assert await journal.deletions.delete_old(time.time() - DAY, limit=10) == 0
    monkeypatch.setattr(journal.deletions, "old", FOUND_BEFORE)
    assert await journal.deletions.delete_old(time.time() - DAY, limit=10) == 0


async def test_an_order_that_is_reopened_while_old_ones_are_deleted_remains(
    move_clock: MoveClock, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = await ended(journal, new_order(), State.ABANDONED)
    move_clock(2 * DAY)
    monkeypatch.setattr(journal.deletions, "old", FOUND_BEFORE)
    reopened = existing(await journal.reopen(abandoned, abandoned))
    assert await journal.deletions.delete_old(time.time() - DAY, limit=10) == 0
    await journal.update(reopened, DECLINED)
    assert await journal.deletions.delete_old(time.time() - DAY, limit=10) == 0


# Clocks


async def test_leases_and_delays_from_a_clock_that_was_ahead_expire(move_clock: MoveClock, journal: Journal) -> None:
    move_clock(DAY)
    claimed = await inserted(journal, new_order("claimed by recovery"))
    await inserted(journal, new_order("taken over by its caller"))
    await shipped(journal, new_order("with an outbox"))
    move_clock(-DAY)
    entry = existing(await journal.find("taken over by its caller"))
    assert not entry.leased
    assert await journal.take_over(entry) is not None
    assert [(entry.order_id, entry.leased) for entry in await claim_orders(journal)] == [(claimed.order_id, True)]
    assert sorted(item.kind for item in await claim_items(journal)) == [EMAIL, EMPTY_CART]


async def test_orders_dated_in_the_future_are_counted_and_stuck(move_clock: MoveClock, journal: Journal) -> None:
    move_clock(DAY)
    ahead = await inserted(journal, new_order())
    move_clock(-DAY)
    await inserted(journal, new_order("of today"))
    assert (await journal.statistics()).future_orders == 1
    (entry,) = await journal.list_orders([], stuck=True, limit=10)
    assert (entry.order_id, entry.stuck) == (ahead.order_id, True)


async def test_orders_are_read_from_a_position_on(journal: Journal) -> None:
    for number in range(3):
        await inserted(journal, new_order(f"scope-{number}", user_id=f"user-{number}"))
    orders = await journal.scan(Position(0), 10)
    assert len(orders) == 3
    assert sorted(orders, key=lambda order: (order.created_at, order.order_id)) == orders
    paged = [await journal.scan(start, 1) for start in (Position(0), *(order.position for order in orders))]
    assert paged == [[order] for order in orders] + [[]]


async def test_orders_are_listed_newest_first_all_and_those_of_a_user(journal: Journal) -> None:
    own = [await shipped(journal, new_order(f"scope-{number}", user_id="ann")) for number in range(3)]
    other = await shipped(journal, new_order("other", user_id="bob"))
    assert [entry.order_id for entry in await journal.list_of_user("ann", limit=2)] == own[:0:-1]
    assert [entry.order_id for entry in await journal.list_orders([], stuck=False, limit=2)] == [other, own[2]]


async def test_finished_and_refused_orders_are_listed_by_state(journal: Journal) -> None:
    finished = await done(journal, new_order("one"))
    declined = (await ended(journal, new_order("two"), State.DECLINED)).order_id

    async def listed(*states: State) -> list[str]:
        return [entry.order_id for entry in await journal.list_orders(states, stuck=False, limit=10)]

    assert await listed(State.DONE, State.DECLINED) == [declined, finished]  # newest first
    by_state = {state: found for state in State if (found := await listed(state))}
    assert by_state == {State.DONE: [finished], State.DECLINED: [declined]}


async def test_an_order_whose_state_does_not_change_is_stuck(move_clock: MoveClock, journal: Journal) -> None:
    new = await inserted(journal, new_order())
    assert await journal.list_orders([], stuck=True, limit=10) == []
    move_clock(100)
    (entry,) = await journal.list_orders([], stuck=True, limit=10)
    assert (entry.order_id, entry.stuck) == (new.order_id, True)


@pytest.mark.parametrize("state", sorted(NEEDS_OPERATOR))
async def test_a_settled_order_waits_no_longer_and_frees_its_cart(
    move_clock: MoveClock, journal: Journal, state: State
) -> None:
    entry = await ended(journal, new_order("first", cart_generation="etag"), state)
    assert [found.order_id for found in await journal.list_orders([], stuck=True, limit=10)] == [entry.order_id]
    move_clock(1000)
    assert (await journal.statistics()).waiting_seconds[state] == pytest.approx(1000, abs=100)
    assert await journal.update(entry, settled(entry))
    closed = existing(await journal.read(entry.order_id))
    assert (closed.state, closed.reason, closed.stuck) == (State.SETTLED, "SETTLED_REFUNDED", False)
    assert await journal.reopen(closed, new_order("first", cart_generation="etag")) is None
    assert (await journal.statistics()).waiting_seconds == {}
    listed = await journal.list_orders([State.SETTLED], stuck=False, limit=10)
    assert [found.order_id for found in listed] == [entry.order_id]
    step = (await journal.history(entry.order_id))[-1]
    assert (step["step"], step["detail"]) == ("settled_refunded", "eve: R-7")
    await inserted(journal, new_order("second", cart_generation="etag"))


async def test_of_two_operators_one_settles_an_order(journal: Journal, other_journal: Journal) -> None:
    entry = await ended(journal, new_order(), State.NEEDS_REVIEW)
    closings = (
        store.update(entry, settled(entry, step=str(number))) for number, store in enumerate((journal, other_journal))
    )
    assert sorted(map(bool, await asyncio.gather(*closings))) == [False, True]
    steps = [event["step"] for event in await journal.history(entry.order_id)]
    assert len([step for step in steps if step.startswith("settled")]) == 1
    assert not await journal.update(entry, SHIPPED)


async def test_statistics_count_unfinished_orders(move_clock: MoveClock, journal: Journal) -> None:
    assert await journal.statistics() == Statistics({}, 0.0, 0)
    await done(journal, new_order("done"))
    order_id = await shipped(journal, new_order("shipped"))
    await journal.set_dead(order_id, EMAIL, reason="NO_SUCH_HOST")
    move_clock(1000)
    await journal.insert(new_order("open"))
    statistics = await journal.statistics()
    found = (statistics.orders, statistics.outbox_backlog, statistics.dead_letters)
    assert found == ({State.CHARGING: 1, State.SHIPPED: 1}, 1, {EMAIL: 1})
    assert 0 <= statistics.oldest_open_seconds < 100


async def test_the_oldest_notification_is_as_old_as_its_shipped_order(move_clock: MoveClock, journal: Journal) -> None:
    order_ids = []
    for number in range(3):
        order_ids.append(await shipped(journal, new_order(str(number))))
        move_clock(1000)
    assert 3000 <= (await journal.statistics()).oldest_item_seconds < 3500
    await journal.complete([item_of(order_ids[0], kind) for kind in (EMAIL, EMPTY_CART)])
    assert 2000 <= (await journal.statistics()).oldest_item_seconds < 2500
    await journal.complete([item_of(order_ids[1], EMPTY_CART)])
    await journal.set_dead(order_ids[1], EMAIL, reason="NO_SUCH_HOST")
    (item,) = await journal.claim_outbox(EMAIL, 1, failed=False)
    await journal.postpone(item, delay_seconds=60, reason="DOWN")
    assert 1000 <= (await journal.statistics()).oldest_item_seconds < 1500


async def until_blocked(task: asyncio.Task[Any], other: psycopg.AsyncConnection[Any]) -> None:
    """Wait until the task has ended, or waits for a lock of the other connection."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not task.done() and await (await other.execute(query)).fetchone() == (0,):  # noqa: ASYNC110 - a database
        await asyncio.sleep(0.01)


# Releases side by side


@pytest.mark.parametrize("etags", [("g" * 16, "g" * 16 + "e" * 16), ("g" * 16 + "e" * 16, "g" * 16)])
async def test_an_order_of_a_release_that_stored_etags_holds_the_same_cart(
    journal: Journal, other_journal: Journal, etags: tuple[str, str]
) -> None:
    first, second = (new_order(etag, cart_generation=etag) for etag in etags)
    await inserted(journal, first)
    assert existing(await other_journal.insert(second)).order_id == first.order_id


async def test_the_protocol_number_rises_once_no_replica_of_the_release_before_lives(
    database_url: str, run_sql: RunSql
) -> None:
    async with open_database(database_url, unavailable=JournalUnavailable) as database:
        old, new, skipped = (Journal(database, f"release {number}", protocol=number) for number in (1, 2, 4))
        for replica in (old, new, old):
            await replica.announce()
            await replica.check()  # a rollback is possible
        abandoned = await ended(old, new_order("abandoned"), State.ABANDONED)
        first = await inserted(old, new_order("first", cart_generation="cart"))
        assert existing(await new.insert(new_order("second", cart_generation="cart"))).order_id == first.order_id
        run_sql("UPDATE replicas SET seen_at = seen_at - 1000")
        run_sql("UPDATE orders SET lease_until = 0")
        await new.announce()
        await new.check()
        for stale in (old, skipped):
            with pytest.raises(JournalUnavailable, match="protocol number 2"):
                await stale.check()
        for begun in (old.insert(new_order("third")), old.reopen(abandoned, abandoned)):
            with pytest.raises(JournalUnavailable, match="protocol number 2"):
                await begun
        assert await old.take_over(first) is None
        assert await old.claim_expired(State.CHARGING, 10, failed=False) == []
        assert len(await new.claim_expired(State.CHARGING, 10, failed=False)) == 1


async def test_a_mismatch_is_open_until_it_is_accepted_or_its_records_agree(journal: Journal) -> None:
    found = [{"order_id": order_id, "kind": "NOT_MAILED", "since": 5.0} for order_id in ("id", "other")]
    await journal.record_mismatches(found, [])
    accepted = [await journal.accept_mismatch("id", kind, "eve: why") for kind in ("NOT_MAILED", "UNKNOWN_ORDER")]
    await journal.record_mismatches([*found[:1], *found[:1]], found[1:])
    (row,) = await journal.mismatches()
    assert accepted == [True, False]
    assert (row["order_id"], row["kind"], row["since"], row["accepted"]) == ("id", "NOT_MAILED", 5.0, "eve: why")
    await journal.record_mismatches([found[1] | {"order_id": str(number)} for number in range(10_000)], [])
    assert len(await journal.mismatches()) == 10_000
