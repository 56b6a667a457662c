from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest

from currency_service.domain import Rates
from currency_service.service import CurrencyService
from shop import currency_pb2
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.money_pb2 import Money
from shop_kit.failing import rejected_fields
from shop_kit.serving import connect


@dataclass
class FixedRates:
    value: Rates


@pytest.fixture
def rates() -> FixedRates:
    return FixedRates(Rates(date(2024, 12, 31), {"USD": Decimal("1.25"), "JPY": Decimal("163.06")}))


@pytest.fixture
async def stub(rates: FixedRates) -> AsyncIterator[CurrencyServiceStub]:
    async with connect(CurrencyService(lambda: rates.value)) as channel:
        yield CurrencyServiceStub(channel)


async def convert(stub: CurrencyServiceStub, to_code: str, code: str, units: int, nanos: int = 0) -> Money:
    amount = Money(currency_code=code, units=units, nanos=nanos)
    return await stub.Convert(currency_pb2.CurrencyConversionRequest(**{"from": amount}, to_code=to_code))


async def test_units_and_nanos_of_a_converted_amount_share_its_sign(stub: CurrencyServiceStub) -> None:
    converted = await convert(stub, "EUR", "USD", -1, -500_000_000)
    assert converted == Money(currency_code="EUR", units=-1, nanos=-200_000_000)


@pytest.mark.parametrize(
    ("to_code", "amount", "field"),
    [("XXX", ("USD", 1), "to_code"), ("EUR", ("usd", 1), "from.currency_code"), ("EUR", ("USD", 1, -1), "from.nanos")],
)
async def test_an_invalid_or_missing_field_is_an_invalid_argument_with_its_name(
    stub: CurrencyServiceStub, to_code: str, amount: tuple[str, int, int], field: str
) -> None:
    assert await rejected_fields(convert(stub, to_code, *amount)) == [field]
    assert await rejected_fields(stub.Convert(currency_pb2.CurrencyConversionRequest(to_code="EUR"))) == ["from"]


async def test_new_rates_are_used_at_once(stub: CurrencyServiceStub, rates: FixedRates) -> None:
    rates.value = Rates(date(2025, 1, 2), {"USD": Decimal(2)})
    assert (await convert(stub, "USD", "EUR", 1)).units == 2
