"""Money in integers: an amount is a whole number of nanos (10^-9 of a unit), never a float."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from chassis.errors import InvalidArgument, OutOfRange

NANOS_PER_UNIT = 1_000_000_000
MAX_NANOS = NANOS_PER_UNIT - 1
MAX_UNITS = 2**63 - 1
MIN_UNITS = -(2**63)


class AmountOutOfRange(OutOfRange):
    """An amount's units don't fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency.

    Attributes:
        currency_code: ISO 4217, three capital letters.
        total_nanos: the whole amount in nanos; minus 1.75 is -1_750_000_000.
    """

    currency_code: str
    total_nanos: int

    @classmethod
    def of(cls, currency_code: str, units: int, nanos: int = 0) -> "Money":
        """Join units and nanos, which share a sign."""
        return cls(currency_code, units * NANOS_PER_UNIT + nanos)

    @property
    def units(self) -> int:
        """Whole units, cut towards zero."""
        return abs(self.total_nanos) // NANOS_PER_UNIT * (1 if self.total_nanos >= 0 else -1)

    @property
    def nanos(self) -> int:
        """What is left of the units, with the amount's sign."""
        return self.total_nanos - self.units * NANOS_PER_UNIT

    def __add__(self, other: "Money") -> "Money":
        self._require_same_currency(other)
        return Money(self.currency_code, self.total_nanos + other.total_nanos)

    def __mul__(self, quantity: int) -> "Money":
        return Money(self.currency_code, self.total_nanos * quantity)

    def __str__(self) -> str:
        sign = "-" if self.total_nanos < 0 else ""
        fraction = f"{abs(self.nanos):09d}".rstrip("0").ljust(2, "0")
        return f"{sign}{abs(self.units)}.{fraction} {self.currency_code}"

    def _require_same_currency(self, other: "Money") -> None:
        if self.currency_code != other.currency_code:
            raise ValueError(f"{self.currency_code} and {other.currency_code} don't add up")

    def in_range(self) -> "Money":
        """The same amount; raises AmountOutOfRange when its units don't fit into an int64."""
        if not MIN_UNITS <= self.units <= MAX_UNITS:
            raise AmountOutOfRange("the amount does not fit into 64 bits")
        return self


def parse_money(currency_code: str, units: int, nanos: int, *, field: str) -> Money:
    """Join the parts of a Money message by the contract's rules; raises InvalidArgument naming the part of `field`."""
    if not is_currency_code(currency_code):
        raise InvalidArgument.field(f"{field}.currency_code", "must be three capital letters (ISO 4217)")
    if abs(nanos) > MAX_NANOS:
        raise InvalidArgument.field(f"{field}.nanos", "must lie between -999999999 and +999999999")
    if (units > 0 > nanos) or (units < 0 < nanos):
        raise InvalidArgument.field(f"{field}.nanos", "must have the sign of units")
    return Money.of(currency_code, units, nanos)


def is_currency_code(code: str) -> bool:
    """Whether the text has the form of an ISO 4217 code."""
    return len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()  # noqa: PLR2004


def total(currency_code: str, amounts: Iterable[Money]) -> Money:
    """Sum amounts of one currency; nothing sums to zero."""
    result = Money(currency_code, 0)
    for amount in amounts:
        result += amount
    return result


def round_half_even(value: Fraction) -> int:
    """Round to the nearest integer, a tie to the even one."""
    return round(value)


def round_to_digits(amount: Money, digits: int) -> Money:
    """Round half-even to a currency's minor unit, given as its number of decimal digits (2 for EUR, 0 for JPY)."""
    step = 10 ** (9 - digits)
    return Money(amount.currency_code, round_half_even(Fraction(amount.total_nanos, step)) * step)
