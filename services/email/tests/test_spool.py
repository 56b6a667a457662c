"""Tests of the spool, which run on both SQLite and PostgreSQL."""

import asyncio
import re
import time
import tracemalloc

import pytest
from structlog.testing import capture_logs

from email_service.messages import ClaimedMessage, MessageState, NewMessage
from email_service.spool import sql, statements
from email_service.spool.sql import Spool, open_spool
from shop_kit.databases import execute, plan_on_sqlite

QUEUED, SENDING, SENT = MessageState.QUEUED, MessageState.SENDING, MessageState.SENT
IN_DOUBT, REFUSED = MessageState.IN_DOUBT, MessageState.REFUSED


async def add(spool: Spool, message_id: str = "o-1") -> MessageState:
    return (await spool.add([NewMessage(message_id, "jane@example.com", b"text\x00\xff")]))[message_id]


async def claim(spool: Spool) -> ClaimedMessage:
    (message,) = await spool.claim(10)
    return message


async def state_of(spool: Spool, message_id: str = "o-1") -> MessageState:
    found = await spool.read(message_id)
    assert found is not None
    return found.state


async def test_a_message_is_claimed_as_it_was_added(spool: Spool) -> None:
    assert await add(spool) is QUEUED
    assert await claim(spool) == ClaimedMessage("o-1", "jane@example.com", b"text\x00\xff", attempt=1, deferrals=0)


async def test_messages_added_together_have_the_states_of_their_ids(spool: Spool) -> None:
    await add(spool, "sent")
    await spool.finish(await claim(spool), SENT)
    messages = [NewMessage(message_id, "jane@example.com", b"text") for message_id in ("sent", "o-2", "o-1")]
    assert await spool.add(messages) == {"sent": SENT, "o-1": QUEUED, "o-2": QUEUED}


async def test_replicas_that_add_the_same_messages_in_different_orders_do_not_deadlock(postgres_url: str) -> None:
    messages = [NewMessage(f"o-{number}", "jane@example.com", b"text") for number in range(100)]
    async with open_spool(postgres_url) as one, open_spool(postgres_url) as other:
        for _ in range(10):
            await asyncio.gather(one.add(messages), other.add(messages[::-1]))
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert execute(postgres_url, query) == [(0,)]


async def test_a_sent_message_has_no_text_and_is_not_sent_when_it_is_added_again(spool: Spool) -> None:
    await add(spool)
    await spool.finish(await claim(spool), SENT)
    found = await spool.read("o-1")
    assert found is not None
    assert (found.recipient, found.content) == ("", b"")
    assert (await add(spool), await spool.claim(10)) == (SENT, [])


async def test_messages_are_claimed_in_the_order_of_their_arrival_up_to_the_limit(spool: Spool) -> None:
    for number in range(5):
        await add(spool, f"o-{number}")
    assert sorted(message.message_id for message in await spool.claim(3)) == ["o-0", "o-1", "o-2"]


async def test_concurrent_claims_never_return_the_same_message(database_url: str) -> None:
    async with open_spool(database_url) as one, open_spool(database_url) as other:
        await asyncio.gather(*(add(one, f"o-{number}") for number in range(60)))
        claims = await asyncio.gather(*(spool.claim(7) for _ in range(6) for spool in (one, other)))
        claims += [await one.claim(60)]
    claimed = [message.message_id for messages in claims for message in messages]
    assert sorted(claimed) == sorted(f"o-{number}" for number in range(60))


async def test_a_message_is_due_again_when_its_claim_expires(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(spool)
    await claim(spool)
    assert await spool.claim(10) == []
    await add(spool, "o-2")
    monkeypatch.setattr(sql, "CLAIM_SECONDS", -1.0)
    assert (await claim(spool)).attempt == (await claim(spool)).attempt - 1


async def test_a_message_that_was_claimed_again_is_neither_sent_nor_changed_by_the_first_claim(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "CLAIM_SECONDS", -1.0)
    await add(spool)
    first, second = await claim(spool), await claim(spool)
    # `begin_sending` must be repeatable, because a transaction is repeated if its connection breaks.
    assert [await spool.begin_sending(claimed) for claimed in (first, second, second)] == [False, True, True]
    await spool.finish(first, REFUSED, "RELAY_550")
    await spool.postpone(first, delay_seconds=-1.0, reason="RELAY_450", deferred=True)
    assert await state_of(spool) is SENDING


async def test_a_postponed_message_is_due_after_its_delay(spool: Spool) -> None:
    await add(spool)
    await spool.postpone(await claim(spool), delay_seconds=100.0, reason="RELAY_450", deferred=True)
    assert await spool.claim(10) == []
    await add(spool, "o-2")
    await spool.postpone(await claim(spool), delay_seconds=0.0, reason="RELAY_450", deferred=True)
    assert (await claim(spool)).deferrals == 1


async def test_a_message_postponed_under_a_clock_that_was_ahead_is_due(spool: Spool) -> None:
    await add(spool)
    await spool.postpone(await claim(spool), delay_seconds=86_400.0, reason="", deferred=False)
    assert (await claim(spool)).attempt == 2


async def test_an_overdue_response_leaves_the_message_in_doubt(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(spool)
    message = await claim(spool)
    await spool.begin_sending(message)
    assert await spool.give_up_overdue() == []
    monkeypatch.setattr(sql, "SENDING_SECONDS", -1.0)
    await spool.begin_sending(message)
    assert await spool.give_up_overdue() == ["o-1"]
    assert await state_of(spool) is IN_DOUBT


@pytest.mark.parametrize(("requeued", "state"), [(False, SENT), (True, QUEUED)])
async def test_a_late_response_settles_a_message_in_doubt_unless_it_was_requeued(
    spool: Spool, requeued: bool, state: MessageState
) -> None:
    await add(spool)
    message = await claim(spool)
    await spool.finish(message, IN_DOUBT, "NO_RESPONSE")
    assert not requeued or await spool.requeue("o-1")
    await spool.finish(message, SENT)
    assert await state_of(spool) is state


@pytest.mark.parametrize("state", [REFUSED, IN_DOUBT])
async def test_a_message_that_was_not_sent_can_be_requeued(spool: Spool, state: MessageState) -> None:
    await add(spool)
    await spool.finish(await claim(spool), state, "RELAY_550")
    assert (await spool.claim(10), await spool.requeue("o-1")) == ([], True)
    assert (await claim(spool)).content == b"text\x00\xff"


async def test_messages_in_other_states_are_not_requeued(spool: Spool) -> None:
    await add(spool, "sent")
    await spool.finish(await claim(spool), SENT)
    await add(spool, "sending")
    await spool.begin_sending(await claim(spool))
    await add(spool, "queued")
    message_ids = ("queued", "sending", "sent", "unknown")
    assert [await spool.requeue(message_id) for message_id in message_ids] == [False] * 4


async def test_messages_are_listed_by_state_without_their_text(spool: Spool) -> None:
    await add(spool, "refused")
    await spool.finish(await claim(spool), REFUSED, "RELAY_550")
    await add(spool, "queued")
    (found,) = await spool.list_unsent(REFUSED, 10)
    assert (found.message_id, found.reason, found.attempts, found.content) == ("refused", "RELAY_550", 1, b"")


async def test_statistics_count_messages_that_were_not_sent(spool: Spool) -> None:
    for message_id in ("queued", "other"):
        await add(spool, message_id)
    await spool.finish((await spool.claim(1))[0], SENT)
    statistics = await spool.statistics()
    assert {state: count for state, (count, _) in statistics.items()} == {QUEUED: 1}
    assert 0 <= statistics[QUEUED][1] < 60


async def test_messages_are_deleted_after_their_retention(spool: Spool) -> None:
    await add(spool)
    with capture_logs() as logs:
        assert [await spool.deletions.delete_old(time.time() + seconds, 10) for seconds in (-60, 60)] == [0, 1]
    assert logs == [{"event": "old messages deleted unsent", "log_level": "error", "QUEUED": 1}]
    assert await spool.deletions.complete_since() == pytest.approx(time.time(), abs=60)
    assert await spool.read("o-1") is None


async def test_a_restart_on_sqlite_takes_no_memory_for_each_message_that_waits(sqlite_url: str) -> None:
    insert = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO letters "
        "(letter_id, state, recipient, message, attempt, deferrals, reason, due_at, accepted_at, changed_at) "
        "SELECT 'letter ' || i, 'QUEUED', 'ann@mail.example', '', 0, 0, '', 1, 1, 1 FROM n"
    )
    execute(sqlite_url, insert)
    tracemalloc.start()
    try:
        async with open_spool(sqlite_url):
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [name for name in vars(statements) if re.fullmatch("(?!NOW)[A-Z][A-Z_]+", name)])
def test_every_statement_finds_its_rows_by_an_index(sqlite_url: str, name: str) -> None:
    text = getattr(statements, name)
    plan = plan_on_sqlite(sqlite_url, text, dict.fromkeys(re.findall(r":(\w+)", text), 0))
    assert [step for step in plan if step.startswith("SCAN letters") and "INDEX" not in step] == []
