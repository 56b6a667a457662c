from fractions import Fraction

import pytest
from babel.numbers import get_currency_symbol, list_currencies
from hypothesis import example, given
from hypothesis import strategies as st

from chassis.errors import InvalidArgument, OutOfRange
from chassis.values.money import (
    MAX_UNITS,
    AmountOutOfRange,
    Money,
    format_amount,
    parse_money,
    round_to_minor_unit,
    total,
)

nanos = st.integers(-(2**90), 2**90)
int64 = st.integers(-(2**63), 2**63 - 1)


def as_fraction(money: Money) -> Fraction:
    return Fraction(money.units) + Fraction(money.nanos, 10**9)


@given(nanos)
def test_units_and_nanos_add_up_to_the_amount_and_share_its_sign(amount: int) -> None:
    money = Money("EUR", amount)
    assert as_fraction(money) == Fraction(amount, 10**9)
    assert money.units * money.nanos >= 0
    assert abs(money.nanos) < 10**9


@given(nanos, nanos, st.integers(-(2**31), 2**31 - 1))
def test_adding_and_multiplying_are_exact(left: int, right: int, quantity: int) -> None:
    assert as_fraction(Money("EUR", left) + Money("EUR", right)) == Fraction(left + right, 10**9)
    assert as_fraction(Money("EUR", left) * quantity) == Fraction(left, 10**9) * quantity


@given(
    nanos | st.integers(-(10**10), 10**10),
    st.sampled_from([("JPY", 0), ("EUR", 2), ("XYZ", 2), ("KWD", 3), ("CLF", 4)]),
)
@example(1_005_000_000, ("EUR", 2))
@example(1_015_000_000, ("EUR", 2))
def test_amounts_are_rounded_half_even_to_the_minor_unit(amount: int, currency: tuple[str, int]) -> None:
    code, digits = currency
    rounded = round_to_minor_unit(Money(code, amount))
    assert as_fraction(rounded) == Fraction(round(Fraction(amount, 10**9) * 10**digits), 10**digits)


@given(int64, st.integers(-(2**31), 2**31 - 1))
def test_a_money_message_is_accepted_exactly_when_the_sign_rules_hold(units: int, part: int) -> None:
    valid = abs(part) <= 999_999_999 and not (units > 0 > part) and not (units < 0 < part)
    if valid:
        assert as_fraction(parse_money("EUR", units, part, field="amount")) == units + Fraction(part, 10**9)
    else:
        with pytest.raises(InvalidArgument, match="amount.nanos"):
            parse_money("EUR", units, part, field="amount")


@pytest.mark.parametrize("code", ["", "EU", "EURO", "eur", "E1R", "ÄUR", "EUR\n"])
def test_a_currency_code_is_three_capital_letters(code: str) -> None:
    with pytest.raises(InvalidArgument, match="amount.currency_code"):
        parse_money(code, 1, 0, field="amount")


def test_amounts_in_different_currencies_cannot_be_added() -> None:
    with pytest.raises(ValueError, match="EUR and USD"):
        total("EUR", [Money("USD", 1)])


def test_an_amount_beyond_64_bits_is_out_of_range() -> None:
    largest = Money.of("EUR", 2**63 - 1, 999_999_999)
    assert largest.in_range() == largest
    with pytest.raises(AmountOutOfRange):
        Money.of("EUR", 2**63).in_range()
    with pytest.raises(OutOfRange):
        round_to_minor_unit(Money.of("JPY", MAX_UNITS, 600_000_000))


@pytest.mark.parametrize(
    ("nanos", "text"),
    [(-1_750_000_000, "-1.75 EUR"), (5, "0.000000005 EUR"), (0, "0.00 EUR"), (12_300_000_000, "12.30 EUR")],
)
def test_an_amount_is_formatted_as_a_decimal(nanos: int, text: str) -> None:
    assert str(Money("EUR", nanos)) == text


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (Money.of("EUR", 1234, 500_000_000), "€1,234.50"),
        (Money.of("USD", 0, 5_000_000), "$0.00"),
        (Money.of("USD", 0, 15_000_000), "$0.02"),
        (Money.of("JPY", 163, 60_000_000), "¥163"),
        (Money.of("CHF", -7), "-CHF\u00a07.00"),
        (Money.of("USD", -1, -750_000_000), "-$1.75"),
        (Money.of("USD", 2**63 - 1, 990_000_000), "$9,223,372,036,854,775,807.99"),
        (Money.of("XYZ", 7), "XYZ\u00a07.00"),
    ],
)
def test_amounts_are_formatted_by_the_rules_of_their_currency(amount: Money, shown: str) -> None:
    assert format_amount(amount) == shown


@pytest.mark.parametrize("code", sorted(list_currencies()))
def test_amounts_have_the_symbol_of_their_currency_and_show_all_that_is_charged(code: str) -> None:
    symbol = get_currency_symbol(code, "en_US")
    prefix = f"{code}\u00a0" if symbol[-1].isalpha() else symbol
    amount = round_to_minor_unit(Money.of(code, 7, 123_456_789))
    shown = format_amount(amount)
    assert shown.startswith(f"{prefix}7")
    assert Money.of(code, 0, int(Fraction(shown.removeprefix(prefix)) * 10**9)) == amount
