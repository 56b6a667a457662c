"""Payment processes that are killed before or after a write."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_kit.processes import service_process

REQUEST = payment_pb2.ChargeRequest(
    amount=money_pb2.Money(currency_code="EUR", units=12),
    credit_card=payment_pb2.CreditCardInfo(
        credit_card_number="4242424242424242",
        credit_card_cvv=123,
        credit_card_expiration_year=2030,
        credit_card_expiration_month=11,
    ),
)


@asynccontextmanager
async def process(url: str, failpoints: str = "") -> AsyncIterator[tuple[asyncio.subprocess.Process, grpc.aio.Channel]]:
    """Run the service; yield its process and a channel to its public port."""
    async with (
        service_process("payment_service", DATABASE_URL=url, HMAC_KEY="k" * 32, FAILPOINTS=failpoints) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        yield running.process, channel


async def charge(channel: grpc.aio.Channel, key: str | None) -> str:
    metadata = () if key is None else (("idempotency-key", key),)
    return (await PaymentServiceStub(channel).Charge(REQUEST, metadata=metadata)).transaction_id


@pytest.mark.parametrize("key", ["key", None])
@pytest.mark.parametrize(("point", "states"), [("payment.charge.before", []), ("payment.charge.after", ["CHARGED"])])
async def test_a_kill_before_or_after_a_charge_leaves_no_partial_charge(
    database_url: str, stored: Callable[[str], list[tuple[Any, ...]]], point: str, states: list[str], key: str | None
) -> None:
    async with process(database_url, f"{point}=kill") as (running, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await charge(channel, key)
        assert await running.wait() == -signal.SIGKILL
    assert [state for _, state, _ in stored(database_url)] == states


async def test_a_charge_repeated_after_a_kill_is_not_charged_again(
    database_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with process(database_url, "payment.charge.after=kill") as (_, channel):
        with pytest.raises(grpc.aio.AioRpcError):
            await charge(channel, "key")
    async with process(database_url) as (_, channel):
        await charge(channel, "key")
    assert stored(database_url) == [("key", "CHARGED", 12)]


async def test_a_shutdown_under_load_loses_no_acknowledged_charge(
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
