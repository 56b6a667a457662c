"""Converts currencies at one day's reference rates, using exact integer arithmetic."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal

from chassis.errors import InvalidArgument
from chassis.values.money import Money, divide_half_even

BASE = "EUR"
RATE_DIGITS = 9

_SCALE: int = 10**RATE_DIGITS


class CurrencyNotSupported(InvalidArgument):
    """There is no exchange rate for the currency."""


class Rates:
    """One day's exchange rates, in units of each currency per euro.

    `per_euro` maps ISO 4217 codes other than EUR to positive rates with at most nine decimal places.
    """

    def __init__(self, day: date, per_euro: Mapping[str, Decimal]) -> None:
        self.day = day
        # Store rates as integer multiples of 10^-9, so that a conversion rounds only once.
        self._scaled = {code: int(rate * _SCALE) for code, rate in per_euro.items()} | {BASE: _SCALE}
        self.codes = tuple(sorted(self._scaled))

    def convert(self, amount: Money, to_code: str) -> Money:
        """Convert via the euro, rounding half to even at nine decimal places.

        Raise CurrencyNotSupported if a currency has no rate, or AmountOutOfRange if the result doesn't fit an int64.
        """
        from_rate = self._scaled_rate(amount.currency_code, "from.currency_code")
        to_rate = self._scaled_rate(to_code, "to_code")
        return Money(to_code, divide_half_even(amount.total_nanos * to_rate, from_rate)).in_range()

    def _scaled_rate(self, code: str, field: str) -> int:
        rate = self._scaled.get(code)
        if rate is None:
            raise CurrencyNotSupported.field(field, "must be a supported currency")
        return rate
