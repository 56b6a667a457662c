from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.values.money import MAX_UNITS, MIN_UNITS, NANOS_PER_UNIT, AmountOutOfRange, Money
from currency_service.domain import CurrencyNotSupported, Rates
from shop_kit.failing import rejecting

DAY = date(2024, 12, 31)
PER_EURO = {"USD": Decimal("1.25"), "JPY": Decimal("163.06"), "IDR": Decimal("16820.88"), "XTS": Decimal("0.000000003")}
RATES = Rates(DAY, PER_EURO)

codes = st.sampled_from(RATES.codes)
rates = st.decimals("0.000000001", "999999999.999999999", places=9)


def test_amounts_are_converted_through_the_euro() -> None:
    assert RATES.convert(Money.of("USD", 10), "EUR") == Money.of("EUR", 8)
    assert RATES.convert(Money.of("EUR", 8), "USD") == Money.of("USD", 10)
    assert RATES.convert(Money.of("USD", 10), "JPY") == Money.of("JPY", 1304, 480_000_000)


@pytest.mark.parametrize(("nanos", "expected"), [(1, 0), (3, 2), (5, 2), (7, 4), (-1, 0), (-3, -2), (-5, -2), (-7, -4)])
def test_half_a_nano_is_rounded_to_even(nanos: int, expected: int) -> None:
    halved = Rates(DAY, {"HLF": Decimal("0.5")})
    assert halved.convert(Money("EUR", nanos), "HLF").total_nanos == expected


@given(st.integers(-(10**27), 10**27), rates, rates)
def test_the_result_is_the_exact_value_rounded_once(nanos: int, from_rate: Decimal, to_rate: Decimal) -> None:
    converted = Fraction(nanos) / Fraction(from_rate) * Fraction(to_rate)
    pair = Rates(DAY, {"AAA": from_rate, "BBB": to_rate})
    if abs(converted) < (MAX_UNITS + 1) * NANOS_PER_UNIT - 1:
        assert pair.convert(Money("AAA", nanos), "BBB") == Money("BBB", round(converted))
    elif abs(converted) > (MAX_UNITS + 2) * NANOS_PER_UNIT:
        with pytest.raises(AmountOutOfRange):
            pair.convert(Money("AAA", nanos), "BBB")


@given(codes, st.integers(MIN_UNITS * NANOS_PER_UNIT, MAX_UNITS * NANOS_PER_UNIT))
def test_converting_to_the_same_currency_changes_nothing(code: str, nanos: int) -> None:
    assert RATES.convert(Money(code, nanos), code) == Money(code, nanos)


@pytest.mark.parametrize("units", [MAX_UNITS, MIN_UNITS])
def test_a_result_beyond_an_int64_is_out_of_range(units: int) -> None:
    assert RATES.convert(Money.of("EUR", units), "EUR").units == units
    with pytest.raises(AmountOutOfRange):
        RATES.convert(Money.of("EUR", units), "USD")


@pytest.mark.parametrize("code", ["", "usd", "US", "USDX", "ÜSD", "XXX"])
def test_a_currency_without_a_rate_is_rejected_with_the_name_of_its_field(code: str) -> None:
    with rejecting("to_code", CurrencyNotSupported) as unknown:
        RATES.convert(Money.of("USD", 1), code)
    with rejecting("from.currency_code", CurrencyNotSupported):
        RATES.convert(Money.of(code, 1), "USD")
    assert not code or code not in unknown.value.message


def test_the_codes_are_sorted_and_include_the_euro() -> None:
    assert RATES.codes == ("EUR", "IDR", "JPY", "USD", "XTS")
