"""One suite for the journal on SQLite and on PostgreSQL."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from chassis.errors import FieldViolation
from checkout_service import journal_sql, statements
from checkout_service.domain import Refusal, State
from checkout_service.journal import EMAIL, EMPTY_CART, Journal, NewOrder, Sent
from checkout_service.journal_sqlite import sqlite_database
from checkout_service.saga import Update

Make = Callable[..., NewOrder]

SHIPPED = Update(State.CHARGING, State.SHIPPED, "transaction", "track-1")
DECLINED = Update(
    State.CHARGING,
    State.DECLINED,
    refusal=Refusal("InvalidArgument", "CARD_EXPIRED", "expired", (FieldViolation("credit_card", "is expired"),)),
)


async def expire(journal: Journal, order_id: str, epoch: int) -> None:
    await journal.release(order_id, epoch, delay_seconds=-1, reason="test")


async def test_a_new_order_is_charging_and_leased(journal: Journal, new_order: Make) -> None:
    new = new_order()
    assert await journal.insert(new) is None
    entry = await journal.find("scope")
    assert entry is not None
    assert (entry.order_id, entry.state, entry.attempt, entry.epoch) == (new.order.order_id, State.CHARGING, 1, 1)
    assert (entry.leased, entry.stuck, entry.total) == (True, False, new.order.total)
    assert (entry.snapshot, entry.answer) == (new.snapshot, None)


async def test_a_second_order_of_a_scope_is_refused_with_the_first(journal: Journal, new_order: Make) -> None:
    first = new_order()
    await journal.insert(first)
    holder = await journal.insert(new_order())
    assert holder is not None
    assert holder.order_id == first.order.order_id


async def test_the_same_insert_again_is_the_same_order(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    assert await journal.insert(new) is None


async def test_of_many_inserts_at_once_one_wins(journal: Journal, other_journal: Journal, new_order: Make) -> None:
    holders = await asyncio.gather(*(each.insert(new_order()) for each in (journal, other_journal) * 10))
    assert holders.count(None) == 1
    assert len({holder.order_id for holder in holders if holder}) == 1


async def test_orders_are_read_by_id(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    found = await journal.read(new.order.order_id)
    assert found == await journal.find("scope")


async def test_nothing_is_found_where_nothing_is(journal: Journal) -> None:
    assert await journal.find("scope") is None
    assert await journal.read("id") is None
    assert await journal.find_recent("mark") is None


async def test_a_shipped_order_keeps_its_answer(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    assert await journal.update(new.order.order_id, 1, SHIPPED, b"answer")
    entry = await journal.find("scope")
    assert entry is not None
    assert (entry.state, entry.answer, entry.tracking_id) == (State.SHIPPED, b"answer", "track-1")


async def test_a_shipped_order_has_an_outbox(journal: Journal, new_order: Make) -> None:
    order_id = await shipped(journal, new_order())
    assert await journal.outbox_of([order_id]) == {order_id: [EMAIL, EMPTY_CART]}


async def test_a_worker_that_lost_the_order_changes_nothing(
    journal: Journal, other_journal: Journal, new_order: Make
) -> None:
    new = new_order()
    await journal.insert(new)
    await expire(journal, new.order.order_id, 1)
    assert len(await other_journal.claim_expired(10)) == 1
    assert not await journal.update(new.order.order_id, 1, SHIPPED, b"stale")
    entry = await journal.find("scope")
    assert entry is not None
    assert (entry.state, entry.epoch) == (State.CHARGING, 2)
    assert await journal.outbox_of([entry.order_id]) == {entry.order_id: []}


async def test_an_update_out_of_another_state_changes_nothing(journal: Journal, new_order: Make) -> None:
    order_id = await shipped(journal, new_order())
    assert not await journal.update(order_id, 1, DECLINED, None)


async def test_the_same_update_again_succeeds(journal: Journal, new_order: Make) -> None:
    order_id = await shipped(journal, new_order())
    assert await journal.update(order_id, 1, SHIPPED, b"answer")
    assert len(await journal.history(order_id)) == 3


async def test_a_refusal_is_kept_as_it_was(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.update(new.order.order_id, 1, DECLINED, None)
    entry = await journal.find("scope")
    assert entry is not None
    assert (entry.refusal, entry.reason) == (DECLINED.refusal, "CARD_EXPIRED")


async def test_a_refusal_outlives_the_voiding_of_its_charge(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.update(
        new.order.order_id, 1, Update(State.CHARGING, State.VOIDING, "t", refusal=DECLINED.refusal), None
    )
    await journal.update(new.order.order_id, 1, Update(State.VOIDING, State.VOIDED), None)
    entry = await journal.find("scope")
    assert entry is not None
    assert (entry.state, entry.refusal) == (State.VOIDED, DECLINED.refusal)


async def test_an_order_under_lease_is_not_taken(journal: Journal, other_journal: Journal, new_order: Make) -> None:
    await journal.insert(new_order())
    entry = await journal.find("scope")
    assert entry is not None
    assert await other_journal.claim_expired(10) == []
    assert await other_journal.take_over(entry) is None


async def test_an_order_past_its_lease_is_taken_by_one_of_two(
    journal: Journal, other_journal: Journal, new_order: Make
) -> None:
    for number in range(8):
        new = new_order(f"scope-{number}")
        await journal.insert(new)
        await expire(journal, new.order.order_id, 1)
    claims = await asyncio.gather(*(each.claim_expired(3) for each in (journal, other_journal) * 4))
    taken = [entry.order_id for claim in claims for entry in claim]
    taken += [entry.order_id for entry in await journal.claim_expired(100)]
    assert len(taken) == len(set(taken)) == 8


async def test_each_take_in_vain_is_counted(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    for failures in range(1, 4):
        await expire(journal, new.order.order_id, failures)
        (entry,) = await journal.claim_expired(10)
        assert (entry.failures, entry.epoch) == (failures, failures + 1)


async def test_a_change_of_state_forgets_what_was_in_vain(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await expire(journal, new.order.order_id, 1)
    (entry,) = await journal.claim_expired(10)
    await journal.update(entry.order_id, entry.epoch, SHIPPED, b"answer")
    found = await journal.read(entry.order_id)
    assert found is not None
    assert found.failures == 0


async def test_a_released_order_rests_for_its_delay(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.release(new.order.order_id, 1, delay_seconds=60, reason="PEER_DOWN")
    assert await journal.claim_expired(10) == []
    entry = await journal.find("scope")
    assert entry is not None
    assert entry.reason == "PEER_DOWN"


async def test_an_abandoned_order_is_reopened_with_another_attempt(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.update(new.order.order_id, 1, Update(State.CHARGING, State.ABANDONED), None)
    entry = await journal.find("scope")
    assert entry is not None
    reopened = await journal.take_over(entry)
    assert reopened is not None
    assert (reopened.state, reopened.attempt, reopened.epoch, reopened.leased) == (State.CHARGING, 2, 2, True)


async def test_an_abandoned_order_is_reopened_once(journal: Journal, other_journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.update(new.order.order_id, 1, Update(State.CHARGING, State.ABANDONED), None)
    entry = await journal.find("scope")
    assert entry is not None
    reopened = await asyncio.gather(*(each.take_over(entry) for each in (journal, other_journal) * 5))
    assert len([one for one in reopened if one]) == 1


async def test_a_restarted_worker_releases_its_own_orders_alone(
    journal: Journal, other_journal: Journal, new_order: Make
) -> None:
    mine, others = new_order("mine"), new_order("others")
    await journal.insert(mine)
    await other_journal.insert(others)
    await journal.release_own()
    assert [entry.order_id for entry in await journal.claim_expired(10)] == [mine.order.order_id]


async def test_an_order_is_found_by_its_request_until_it_is_refused(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    found = await journal.find_recent("mark")
    assert found is not None
    assert found.order_id == new.order.order_id
    await journal.update(new.order.order_id, 1, DECLINED, None)
    assert await journal.find_recent("mark") is None


async def test_an_order_is_done_when_its_outbox_is_empty(journal: Journal, new_order: Make) -> None:
    order_id = await shipped(journal, new_order())
    assert await journal.settle([Sent(order_id, EMAIL, "email_sent")]) == []
    assert await journal.settle([Sent(order_id, EMPTY_CART, "cart_emptied")]) == [order_id]
    entry = await journal.read(order_id)
    assert entry is not None
    assert entry.state is State.DONE


async def test_orders_are_settled_together(journal: Journal, new_order: Make) -> None:
    order_ids = [await shipped(journal, new_order(f"scope-{number}")) for number in range(5)]
    sent = [Sent(order_id, kind, "sent") for order_id in order_ids for kind in (EMAIL, EMPTY_CART)]
    assert sorted(await journal.settle(sent)) == sorted(order_ids)


async def test_a_fresh_outbox_is_left_to_the_worker_that_filled_it(journal: Journal, new_order: Make) -> None:
    await shipped(journal, new_order())
    assert await journal.claim_outbox(10) == []


async def test_an_item_that_is_due_is_taken_once(
    journal: Journal, other_journal: Journal, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_sql, "OUTBOX_LEASE_SECONDS", -1)
    order_id = await shipped(journal, new_order())
    claims = await asyncio.gather(*(each.claim_outbox(1) for each in (journal, other_journal) * 4))
    items = [item for claim in claims for item in claim] + await journal.claim_outbox(10)
    assert sorted(item.kind for item in items) == [EMAIL, EMPTY_CART]
    assert {(item.order.order_id, item.order.answer, item.failures) for item in items} == {(order_id, b"answer", 1)}


async def test_a_postponed_item_rests(journal: Journal, new_order: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_sql, "OUTBOX_LEASE_SECONDS", -1)
    await shipped(journal, new_order())
    items = await journal.claim_outbox(10)
    await journal.postpone(items[0], delay_seconds=-1, reason="DOWN")
    await journal.postpone(items[1], delay_seconds=60, reason="DOWN")
    assert [(item.kind, item.failures) for item in await journal.claim_outbox(10)] == [(items[0].kind, 2)]


async def test_the_history_tells_every_step(journal: Journal, new_order: Make) -> None:
    order_id = await shipped(journal, new_order())
    await journal.settle([Sent(order_id, EMAIL, "email_sent"), Sent(order_id, EMPTY_CART, "cart_emptied")])
    history = await journal.history(order_id)
    assert [event.step for event in history[:3]] == ["inserted", "charged", "shipped"]
    assert {event.step for event in history[3:5]} == {"email_sent", "cart_emptied"}
    assert [(event.step, event.state) for event in history[5:]] == [("done", State.DONE)]
    assert [event.at for event in history] == sorted(event.at for event in history)


async def test_the_clock_of_a_file_tells_apart_what_happens_in_one_millisecond(tmp_path: Path) -> None:
    async with sqlite_database(tmp_path / "journal.db") as opened:
        times = [row[0] for _ in range(50) for row in await opened.read(f"SELECT {opened.now}")]
    assert sorted(set(times)) == times


async def test_the_history_tells_of_every_worker(journal: Journal, other_journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await expire(journal, new.order.order_id, 1)
    await other_journal.claim_expired(10)
    history = await journal.history(new.order.order_id)
    assert [(event.step, event.epoch, event.detail) for event in history] == [
        ("inserted", 1, "one"),
        ("left", 1, "test"),
        ("taken_over", 2, "two"),
    ]


async def test_orders_are_listed_newest_first(journal: Journal, new_order: Make) -> None:
    order_ids = [await shipped(journal, new_order(f"scope-{number}")) for number in range(5)]
    listed = await journal.list_orders([], stuck=False, limit=3)
    assert [entry.order_id for entry in listed] == sorted(order_ids, reverse=True)[:3]


async def test_orders_are_listed_by_state(journal: Journal, new_order: Make) -> None:
    await shipped(journal, new_order("one"))
    open_one = new_order("two")
    await journal.insert(open_one)
    listed = await journal.list_orders([State.CHARGING, State.VOIDING], stuck=False, limit=10)
    assert [entry.order_id for entry in listed] == [open_one.order.order_id]


async def test_an_order_that_does_not_move_is_stuck(
    journal: Journal, new_order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_sql, "STUCK_SECONDS", -1)
    new = new_order()
    await journal.insert(new)
    (entry,) = await journal.list_orders([], stuck=True, limit=10)
    assert (entry.order_id, entry.stuck) == (new.order.order_id, True)


async def test_an_order_that_needs_a_refund_is_stuck(journal: Journal, new_order: Make) -> None:
    new = new_order()
    await journal.insert(new)
    await journal.insert(new_order("fresh"))
    await journal.update(new.order.order_id, 1, Update(State.CHARGING, State.VOIDING, "t"), None)
    await journal.update(new.order.order_id, 1, Update(State.VOIDING, State.NEEDS_REFUND), None)
    listed = await journal.list_orders([], stuck=True, limit=10)
    assert [entry.order_id for entry in listed] == [new.order.order_id]


async def test_statistics_count_what_is_not_finished(journal: Journal, new_order: Make) -> None:
    await journal.insert(new_order("open"))
    done = await shipped(journal, new_order("done"))
    await journal.settle([Sent(done, kind, "sent") for kind in (EMAIL, EMPTY_CART)])
    await shipped(journal, new_order("shipped"))
    statistics = await journal.statistics()
    assert statistics.orders == {State.CHARGING: 1, State.SHIPPED: 1}
    assert statistics.outbox_backlog == 2
    assert 0 <= statistics.oldest_open_seconds < 100


async def test_statistics_of_an_empty_journal_are_zeros(journal: Journal) -> None:
    statistics = await journal.statistics()
    assert (statistics.orders, statistics.oldest_open_seconds, statistics.outbox_backlog) == ({}, 0.0, 0)


async def test_amounts_beyond_64_bits_of_nanos_are_kept(journal: Journal, new_order: Make) -> None:
    from chassis.money import MAX_UNITS, Money  # noqa: PLC0415

    huge = Money.of("EUR", MAX_UNITS, 999_999_999)
    new = new_order(shipping_cost=huge, lines=())
    await journal.insert(new)
    entry = await journal.find("scope")
    assert entry is not None
    assert entry.total == huge


async def test_the_journal_answers(journal: Journal) -> None:
    await journal.check()


def test_every_use_of_the_active_orders_index_repeats_its_condition() -> None:
    for sql in (statements.CLAIM_EXPIRED, statements.COUNT_ACTIVE, statements.STUCK, statements.SET_DONE):
        assert statements.ACTIVE in sql


async def shipped(journal: Journal, new: NewOrder) -> str:
    await journal.insert(new)
    assert await journal.update(new.order.order_id, 1, SHIPPED, b"answer")
    return new.order.order_id
