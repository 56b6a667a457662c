import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

import grpc
import pytest

from chassis.failpoints import Failpoints
from chassis.status import from_rpc_error
from payment_service.cards import Brand
from payment_service.domain import ChargeOrder, Ledger, Till
from payment_service.failpoints import FAILPOINTS
from payment_service.service import PaymentLedger, PaymentService
from payment_service.store import open_ledger
from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub, add_PaymentServiceServicer_to_server
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub, add_PaymentLedgerServicer_to_server
from shop_testkit.serving import connect

Order = Callable[..., ChargeOrder]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Payments:
    """Both services of one process, as a caller sees them."""

    public: PaymentServiceStub
    internal: PaymentLedgerStub

    async def charge(self, order: ChargeOrder, key: str | None = None) -> str:
        metadata = () if key is None else (("idempotency-key", key),)
        response = await self.public.Charge(to_wire(order), metadata=metadata)
        return response.transaction_id

    async def resolve(self, key: str) -> ledger_pb2.ResolveOrFenceResponse:
        return await self.internal.ResolveOrFence(ledger_pb2.ResolveOrFenceRequest(charge_key=key))

    async def void(self, key: str) -> str:
        return (await self.internal.Void(ledger_pb2.VoidRequest(charge_key=key))).transaction_id


def to_wire(order: ChargeOrder) -> payment_pb2.ChargeRequest:
    return payment_pb2.ChargeRequest(
        amount=money_pb2.Money(currency_code=order.currency_code, units=order.units, nanos=order.nanos),
        credit_card=payment_pb2.CreditCardInfo(
            credit_card_number=order.card.number,
            credit_card_cvv=order.card.cvv,
            credit_card_expiration_year=order.card.year,
            credit_card_expiration_month=order.card.month,
        ),
    )


def till_of(ledger: Ledger) -> Till:
    return Till(ledger, b"k" * 32, frozenset({Brand.VISA, Brand.MASTERCARD}), lambda: date(2026, 11, 21))


@asynccontextmanager
async def serving(ledger: Ledger, failpoints: str = "") -> AsyncIterator[Payments]:
    points, till = Failpoints(failpoints), till_of(ledger)
    async with connect(
        (add_PaymentServiceServicer_to_server, PaymentService(till, points)),
        (add_PaymentLedgerServicer_to_server, PaymentLedger(till, points)),
    ) as channel:
        yield Payments(PaymentServiceStub(channel), PaymentLedgerStub(channel))


@pytest.fixture
async def payments(sqlite_ledger: Ledger) -> AsyncIterator[Payments]:
    async with serving(sqlite_ledger) as opened:
        yield opened


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """The code and the reason that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), from_rpc_error(error.value).reason


async def test_a_key_charges_once_and_answers_the_same(payments: Payments, order: Order) -> None:
    assert await payments.charge(order(), "key") == await payments.charge(order(), "key")


async def test_charges_without_a_key_are_charges_of_their_own(payments: Payments, order: Order) -> None:
    assert await payments.charge(order()) != await payments.charge(order())


@pytest.mark.parametrize(
    ("changed", "code", "reason"),
    [
        ({"number": "4242424242424241"}, grpc.StatusCode.INVALID_ARGUMENT, "CARD_NUMBER_INVALID"),
        ({"month": 13}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
        ({"units": 0, "nanos": 0}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
        ({"year": 2025}, grpc.StatusCode.FAILED_PRECONDITION, "CARD_EXPIRED"),
        ({"number": "378282246310005"}, grpc.StatusCode.FAILED_PRECONDITION, "BRAND_NOT_ACCEPTED"),
    ],
)
async def test_a_refusal_tells_its_code_and_reason(
    payments: Payments, order: Order, changed: dict[str, object], code: grpc.StatusCode, reason: str
) -> None:
    assert await refused(payments.charge(order(**changed))) == (code, reason)


@pytest.mark.parametrize("missing", ["amount", "credit_card"])
async def test_a_missing_message_is_refused_by_its_name(payments: Payments, order: Order, missing: str) -> None:
    request = to_wire(order())
    request.ClearField(missing)
    with pytest.raises(grpc.aio.AioRpcError, match=missing) as error:
        await payments.public.Charge(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("key", ["", "two words", "k" * 256])
async def test_a_key_of_another_form_is_refused(payments: Payments, order: Order, key: str) -> None:
    code, _ = await refused(payments.charge(order(), key))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_key_that_comes_with_another_amount_is_refused(payments: Payments, order: Order) -> None:
    await payments.charge(order(), "key")
    expected = (grpc.StatusCode.INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED")
    assert await refused(payments.charge(order(units=99), "key")) == expected


async def test_a_charge_is_resolved_with_its_transaction_and_amount(payments: Payments, order: Order) -> None:
    transaction_id = await payments.charge(order(), "key")
    amount = money_pb2.Money(currency_code="EUR", units=12, nanos=340_000_000)
    assert (await payments.resolve("key")).charged == ledger_pb2.Charged(transaction_id=transaction_id, amount=amount)


async def test_a_key_that_charged_nothing_is_fenced_for_good(payments: Payments, order: Order) -> None:
    assert (await payments.resolve("key")).WhichOneof("outcome") == "fenced"
    assert await refused(payments.charge(order(), "key")) == (grpc.StatusCode.ABORTED, "CHARGE_FENCED")


async def test_a_decline_is_resolved_with_its_reason(payments: Payments, order: Order) -> None:
    await refused(payments.charge(order(year=2025), "key"))
    assert (await payments.resolve("key")).declined.reason == "CARD_EXPIRED"


async def test_a_void_answers_the_charge_it_released(payments: Payments, order: Order) -> None:
    transaction_id = await payments.charge(order(), "key")
    assert await payments.void("key") == await payments.void("key") == transaction_id
    assert (await payments.resolve("key")).voided.transaction_id == transaction_id


async def test_a_voided_key_is_refused(payments: Payments, order: Order) -> None:
    await payments.charge(order(), "key")
    await payments.void("key")
    assert await refused(payments.charge(order(), "key")) == (grpc.StatusCode.FAILED_PRECONDITION, "CHARGE_VOIDED")


async def test_an_unknown_key_has_nothing_to_void(payments: Payments) -> None:
    assert await refused(payments.void("key")) == (grpc.StatusCode.NOT_FOUND, "CHARGE_NOT_FOUND")


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_the_ledger_refuses_keys_that_no_charge_can_have(payments: Payments, key: str) -> None:
    assert (await refused(payments.resolve(key)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await refused(payments.void(key)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_thousand_charges_delivered_twice_are_a_thousand_charges(
    ledger_url: str, order: Order, stored: Callable[[str], list[tuple[object, ...]]]
) -> None:
    at_once = asyncio.Semaphore(16)
    async with open_ledger(ledger_url) as ledger, serving(ledger) as payments:

        async def charge(number: int) -> str:
            async with at_once:
                return await payments.charge(order(units=1 + number), f"key-{number:03}")

        answers = await asyncio.gather(*(charge(number) for number in range(1000) for _ in range(2)))
    assert answers[::2] == answers[1::2]
    assert stored(ledger_url) == sorted((f"key-{number:03}", "CHARGED", 1 + number) for number in range(1000))


@pytest.mark.parametrize("key", ["key", None])
@pytest.mark.parametrize("point", ["payment.charge.before", "payment.charge.after"])
async def test_a_charge_that_failed_on_the_way_is_an_internal_error_without_words(
    sqlite_ledger: Ledger, order: Order, point: str, key: str | None
) -> None:
    async with serving(sqlite_ledger, f"{point}=error*1") as payments:
        assert await refused(payments.charge(order(), key)) == (grpc.StatusCode.INTERNAL, "INTERNAL")


@pytest.mark.parametrize("action", ["error", "hang"])
@pytest.mark.parametrize("point", FAILPOINTS)
async def test_what_failed_or_hung_on_the_way_has_one_effect_when_repeated(
    sqlite_url: str, order: Order, stored: Callable[[str], list[tuple[object, ...]]], point: str, action: str
) -> None:
    """Charge, resolve, void: whichever of them is disturbed and repeated, the charge is voided once."""
    async with open_ledger(sqlite_url) as ledger, serving(ledger, f"{point}={action}*1") as payments:
        charged = await repeated(lambda: payments.charge(order(), "key"))
        await repeated(lambda: payments.resolve("key"))
        assert await repeated(lambda: payments.void("key")) == charged
    assert stored(sqlite_url) == [("key", "VOIDED", 12)]


async def repeated(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Call, and call again if that failed or took too long."""
    try:
        return await asyncio.wait_for(call(), 1)
    except (grpc.aio.AioRpcError, TimeoutError):
        return await call()
