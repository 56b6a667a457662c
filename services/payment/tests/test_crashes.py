"""A payment process that ends under load. `shop prove` kills it."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

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


async def test_a_shutdown_under_load_loses_no_acknowledged_charge(
    sqlite_url: str, stored: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    async with (
        service_process("payment_service", DATABASE_URL=sqlite_url, HMAC_KEY="k" * 32) as running,
        grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel,
    ):
        stub = PaymentServiceStub(channel)
        keys = [f"key-{number}" for number in range(200)]
        calls = [asyncio.ensure_future(stub.Charge(REQUEST, metadata=(("idempotency-key", key),))) for key in keys]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        running.process.terminate()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert await running.process.wait() == 0
    answered = {key for key, answer in zip(keys, answers, strict=True) if not isinstance(answer, BaseException)}
    assert answered
    assert answered <= {key for key, _, _ in stored(sqlite_url)}
