import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import Literal

import grpc
import pytest

from chassis.rpc.wire import card_to_wire
from chassis.values import paging
from chassis.values.keys import HmacKeys
from chassis.values.orders import Card
from payment_service.cards import Brand
from payment_service.domain import PaymentProcessor
from payment_service.failpoints import FAILPOINTS
from payment_service.ledger.sql import SqlLedger, open_ledger
from payment_service.service import PaymentService
from shop import money_pb2, payment_pb2
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_internal import payment_ledger_pb2 as ledger_pb2
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_kit.databases import execute
from shop_kit.failing import all_pages, failure_of, rejected_fields, retried
from shop_kit.serving import connect

KEYS = HmacKeys.parse("k" * 32)


@dataclass(frozen=True)
class Payments:
    """Stubs of the public and the internal service in one process."""

    public: PaymentServiceStub
    internal: PaymentLedgerStub

    async def charge(self, key: str | None = None, fingerprint: str | None = None, *, year: int = 2030) -> str:
        given = {"idempotency-key": key, "request-fingerprint": fingerprint}
        metadata = tuple((name, value) for name, value in given.items() if value is not None)
        response = await self.public.Charge(charge_request(year), metadata=metadata)
        return response.transaction_id

    async def resolve(self, key: str) -> ledger_pb2.ResolveOrFenceResponse:
        return await self.internal.ResolveOrFence(ledger_pb2.ResolveOrFenceRequest(charge_key=key))

    async def void(self, key: str) -> str:
        return (await self.internal.Void(ledger_pb2.VoidRequest(charge_key=key))).transaction_id


def charge_request(year: int = 2030) -> payment_pb2.ChargeRequest:
    """Make a request to charge 12.34 EUR to a card that expires in this year."""
    return payment_pb2.ChargeRequest(
        amount=money_pb2.Money(currency_code="EUR", units=12, nanos=340_000_000),
        credit_card=card_to_wire(Card("4242 4242 4242 4242", 123, year, 11)),
    )


@asynccontextmanager
async def serving(ledger: SqlLedger, failpoints: str = "") -> AsyncIterator[Payments]:
    processor = PaymentProcessor(ledger, KEYS, {Brand.VISA}, lambda: date(2026, 11, 21), lambda _reason: None)
    async with connect(PaymentService(processor, ledger), failpoints=failpoints) as channel:
        yield Payments(PaymentServiceStub(channel), PaymentLedgerStub(channel))


@pytest.fixture
async def payments(sqlite_ledger: SqlLedger) -> AsyncIterator[Payments]:
    async with serving(sqlite_ledger) as opened:
        yield opened


async def test_a_charge_without_a_key_is_a_new_charge(payments: Payments) -> None:
    assert await payments.charge() != await payments.charge()


@pytest.mark.parametrize("missing", ["amount", "credit_card"])
async def test_a_missing_field_is_refused_with_its_name(
    payments: Payments, missing: Literal["amount", "credit_card"]
) -> None:
    request = charge_request()
    request.ClearField(missing)
    assert await rejected_fields(payments.public.Charge(request)) == [missing]


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_malformed_key_is_refused(payments: Payments, key: str) -> None:
    for call in (payments.charge(key), payments.resolve(key), payments.void(key)):
        assert (await failure_of(call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_repeated_charge_and_its_resolution_return_what_was_recorded_of_the_first_one_and_when(
    payments: Payments,
) -> None:
    transaction_id, trailers = await payments.charge("key", "first"), []
    for fingerprint in ("second", None):
        assert await payments.charge("key", fingerprint) == transaction_id
    for key in ("key", "new"):
        call = payments.public.Charge(charge_request(), metadata=(("idempotency-key", key),))
        await call
        trailers.append(dict(await call.trailing_metadata()))
    found = (await payments.resolve("key")).charged
    amount = money_pb2.Money(currency_code="EUR", units=12, nanos=340_000_000)
    assert (found.transaction_id, found.amount, found.request_fingerprint) == (transaction_id, amount, "first")
    assert found.recorded_at.ToSeconds() == pytest.approx(time.time(), abs=60)
    recorded_at = f"{found.recorded_at.ToMicroseconds() / 1e6:.6f}"
    assert [trailer.get("charged-at") for trailer in trailers] == [recorded_at, None]


async def test_a_fingerprint_that_is_too_long_is_refused(payments: Payments) -> None:
    assert await rejected_fields(payments.charge("key", "f" * 65)) == ["request-fingerprint"]
    assert await payments.charge("key", "f" * 64)


async def test_resolving_an_unused_key_fences_it_and_a_second_resolution_says_that_it_was(payments: Payments) -> None:
    assert [(await payments.resolve("key")).fenced.existing for _ in range(2)] == [False, True]
    assert await failure_of(payments.charge("key")) == (grpc.StatusCode.ABORTED, "CHARGE_FENCED")


async def test_charges_are_listed_page_by_page(payments: Payments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    charged = {f"key-{number}": await payments.charge(f"key-{number}") for number in range(5)}
    fetch = payments.internal.ListCharges
    pages = await all_pages(lambda token: fetch(ledger_pb2.ListChargesRequest(page_token=token)))
    listed = [charge for page in pages for charge in page.charges]
    assert [len(page.charges) for page in pages] == [2, 2, 1, 0]
    assert {charge.charge_key: charge.transaction_id for charge in listed} == charged
    assert listed[0].amount == money_pb2.Money(currency_code="EUR", units=12, nanos=340_000_000)
    assert listed[0].recorded_at.ToSeconds() == pytest.approx(time.time(), abs=60)


async def test_a_void_returns_the_transaction_it_voided_and_a_resolution_what_was_voided_or_declined(
    payments: Payments,
) -> None:
    transaction_id = await payments.charge("key")
    assert await payments.void("key") == await payments.void("key") == transaction_id
    assert (await payments.resolve("key")).voided.transaction_id == transaction_id
    await failure_of(payments.charge("declined", year=2025))
    assert (await payments.resolve("declined")).declined.reason == "CARD_EXPIRED"


@pytest.mark.parametrize("action", ["error", "hang"])
@pytest.mark.parametrize("point", FAILPOINTS)
async def test_a_call_that_failed_or_hung_has_one_effect_when_retried(sqlite_url: str, point: str, action: str) -> None:
    """Whichever call fails and is retried (charge, resolve or void), there is one voided charge in the end."""
    async with open_ledger(sqlite_url) as ledger, serving(ledger, f"{point}={action}*1") as payments:
        charged = await retried(lambda: payments.charge("key"))
        await retried(lambda: payments.resolve("key"))
        assert await retried(lambda: payments.void("key")) == charged
    assert execute(sqlite_url, "SELECT charge_key, state, units FROM charges") == [("key", "VOIDED", 12)]
