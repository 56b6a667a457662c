"""Currency conversion at the reference rates of one day, in exact integer arithmetic."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Protocol

from chassis.errors import InvalidArgument
from chassis.values.money import Money, divide_half_even

BASE = "EUR"
RATE_DIGITS = 9

_SCALE: int = 10**RATE_DIGITS


class CurrencyNotSupported(InvalidArgument):
    """There is no exchange rate for the currency."""


class Rates:
    """Exchange rates as units of a currency per euro.

    Args:
        day: the day of publication.
        per_euro: by ISO 4217 code; above zero, with at most nine decimals, without the euro itself.
    """

    def __init__(self, day: date, per_euro: Mapping[str, Decimal]) -> None:
        self.day = day
        # As integers of 10^-9: a conversion is one product, one quotient and one rounding.
        self._scaled = {code: int(rate * _SCALE) for code, rate in per_euro.items()} | {BASE: _SCALE}
        self.codes = tuple(sorted(self._scaled))

    def convert(self, amount: Money, to_code: str) -> Money:
        """Convert through the euro and round half-even to nanos.

        Raise CurrencyNotSupported with the name of the field, or AmountOutOfRange when the units of the result do not
        fit into an int64.
        """
        from_rate = self._scaled_rate(amount.currency_code, "from.currency_code")
        to_rate = self._scaled_rate(to_code, "to_code")
        return Money(to_code, divide_half_even(amount.total_nanos * to_rate, from_rate)).in_range()

    def _scaled_rate(self, code: str, field: str) -> int:
        rate = self._scaled.get(code)
        if rate is None:
            raise CurrencyNotSupported.field(field, "must be a supported currency")
        return rate


class RatesSource(Protocol):
    """Provides the current rates."""

    @property
    def value(self) -> Rates:
        """The latest rates."""
        ...
