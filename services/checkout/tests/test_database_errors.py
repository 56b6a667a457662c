"""Rows that cannot be written, tables that are away, and any other error of the journal's database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import chain

import grpc
import pytest

from chassis.rpc.status import from_rpc_error
from checkout_service import outbox, queue_workers, recovery
from checkout_service.domain import order_id_of
from checkout_service.journal import sql
from checkout_service.requests import scope_of
from shop_kit.checkouts import Checkout, Start
from shop_kit.fake_peers import FakePeers
from shop_kit.statement_errors import StatementErrors
from shop_kit.waiting import wait_for_result

RunSql = Callable[[str], object]

POISON = """
    CREATE FUNCTION refuse() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = 'XX000'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON orders FOR EACH ROW WHEN (OLD.order_id = '{}') EXECUTE FUNCTION refuse()
"""
CUSTOMERS = 40


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_url"))


@pytest.fixture(autouse=True)
def _short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_workers, "_FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(queue_workers, "_LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(recovery, "_STATISTICS_SECONDS", 0.05)
    monkeypatch.setattr(recovery, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(recovery, "retry_delay_seconds", lambda _failures: 0.0)
    monkeypatch.setattr(outbox, "retry_delay_seconds", lambda _failures: 0.0)
    monkeypatch.setattr(sql, "OUTBOX_LEASE_SECONDS", 0.5)


async def answer(checkout: Checkout, user: str) -> str:
    """Place a user's order under their key; return OK, or the reason of the error."""
    try:
        await checkout.place(user, user_id=user)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    return "OK"


async def until_answered(checkout: Checkout, user: str) -> None:
    """Repeat an order until it is placed: on a busy machine its short lease may expire before."""
    await wait_for_result(lambda: answer(checkout, user), lambda code: code == "OK")


async def test_a_checkout_answers_and_goes_on_whichever_statement_fails(
    start: Start, peers: FakePeers, statement_errors: StatementErrors
) -> None:
    async with start(lease_seconds=0.5) as checkout:
        peers.cart.fill("first", mug=1)
        await until_answered(checkout, "first")
        await checkout.until_done(1)
        texts, answers, failed = list(statement_errors.runs), [], 0
        for number, text in enumerate(texts):
            user = f"user-{number}"
            peers.cart.fill(user, mug=1)
            statement_errors.failing, before = text, statement_errors.runs[text]
            answers += [await answer(checkout, user) for _ in range(2)]
            await asyncio.sleep(0.1)  # loops run it too
            statement_errors.failing = ""
            failed += statement_errors.runs[text] > before
        await asyncio.gather(*(until_answered(checkout, f"user-{number}") for number in range(len(texts))))
        assert set(answers) == {"OK", "JOURNAL_UNAVAILABLE", "ORDER_IN_PROGRESS"}
        await checkout.until_done(len(texts) + 1)
    assert failed > 12  # the others run once, or seldom


@pytest.fixture
async def replicas(start: Start) -> AsyncIterator[list[Checkout]]:
    """Two checkouts that share a journal."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(start(lease_seconds=1.0)) for _ in range(2)]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_row_that_cannot_be_written_and_a_table_that_is_away_end_nothing(
    replicas: list[Checkout], peers: FakePeers, run_sql: RunSql
) -> None:
    users = [f"user-{number}" for number in range(CUSTOMERS)]
    poisoned = order_id_of(scope_of("poisoned", "key", "poisoned"))
    for user in (*users, "poisoned"):
        peers.cart.fill(user, mug=1)
    await asyncio.to_thread(run_sql, POISON.format(poisoned))
    assert {await answer(replicas[0], "poisoned") for _ in range(2)} == {"ORDER_IN_PROGRESS"}
    await asyncio.gather(*(until_answered(replicas[number % 2], user) for number, user in enumerate(users[::2])))
    await asyncio.to_thread(run_sql, "ALTER TABLE orders RENAME TO away")
    assert set(await asyncio.gather(*(answer(replica, users[1]) for replica in replicas))) == {"JOURNAL_UNAVAILABLE"}
    await asyncio.sleep(1)
    await asyncio.to_thread(run_sql, "ALTER TABLE away RENAME TO orders")
    again = zip(chain(*[replicas] * CUSTOMERS), users, strict=False)
    await asyncio.gather(*(until_answered(replica, user) for replica, user in again))
    await replicas[0].until_done(CUSTOMERS)
    assert await answer(replicas[1], "poisoned") == "ORDER_IN_PROGRESS"
    await asyncio.to_thread(run_sql, "DROP TRIGGER refuse ON orders")
    await replicas[1].until_done(CUSTOMERS + 1)
    await until_answered(replicas[0], "poisoned")
    assert len(set(peers.payment.captured)) == len(peers.payment.captured) == CUSTOMERS + 1
