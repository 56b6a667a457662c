import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from chassis.errors import InvalidArgument, OutOfRange

NANOS_PER_UNIT = 1_000_000_000
MAX_NANOS = NANOS_PER_UNIT - 1
MAX_UNITS = 2**63 - 1
MIN_UNITS = -(2**63)
_AMOUNT = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ([A-Z]{3})")

# Each line has a code (ISO 4217), the number of minor unit digits, and the American English symbol (CLDR). Currencies
# with two digits and no symbol are left out. A library for this would take 5 MB of memory.
_CURRENCIES = [line.split(";") for line in Path(__file__).with_name("currencies.csv").read_text("utf-8").splitlines()]
_MINOR_UNIT_DIGITS = {code: int(digits) for code, digits, _ in _CURRENCIES}
_SYMBOLS = {code: symbol for code, _, symbol in _CURRENCIES}


class AmountOutOfRange(OutOfRange):
    """An amount's units don't fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency, in billionths (nanos) of its unit: -1.75 is -1_750_000_000 nanos."""

    currency_code: str  # ISO 4217
    total_nanos: int

    @classmethod
    def of(cls, currency_code: str, units: int, nanos: int = 0) -> "Money":
        return cls(currency_code, units * NANOS_PER_UNIT + nanos)

    @property
    def units(self) -> int:
        return abs(self.total_nanos) // NANOS_PER_UNIT * (1 if self.total_nanos >= 0 else -1)

    @property
    def nanos(self) -> int:
        return abs(self.total_nanos) % NANOS_PER_UNIT * (1 if self.total_nanos >= 0 else -1)

    def __add__(self, other: "Money") -> "Money":
        if self.currency_code != other.currency_code:
            raise ValueError(f"can't add amounts in {self.currency_code} and {other.currency_code}")
        return Money(self.currency_code, self.total_nanos + other.total_nanos)

    def __mul__(self, quantity: int) -> "Money":
        return Money(self.currency_code, self.total_nanos * quantity)

    def __str__(self) -> str:
        sign = "-" if self.total_nanos < 0 else ""
        fraction = f"{abs(self.nanos):09d}".rstrip("0").ljust(2, "0")
        return f"{sign}{abs(self.units)}.{fraction} {self.currency_code}"

    def in_range(self) -> "Money":
        """Return this amount. Raise AmountOutOfRange if its units don't fit into 64 bits."""
        if not MIN_UNITS <= self.units <= MAX_UNITS:
            raise AmountOutOfRange("the amount does not fit into 64 bits")
        return self


def parse_money(currency_code: str, units: int, nanos: int, *, field: str) -> Money:
    """Create an amount from a Money message's fields. If a field is invalid, raise InvalidArgument with its path."""
    if not is_currency_code(currency_code):
        raise InvalidArgument.field(f"{field}.currency_code", "must be three capital letters (ISO 4217)")
    if abs(nanos) > MAX_NANOS:
        raise InvalidArgument.field(f"{field}.nanos", "must lie between -999999999 and +999999999")
    if (units > 0 > nanos) or (units < 0 < nanos):
        raise InvalidArgument.field(f"{field}.nanos", "must have the sign of units")
    return Money.of(currency_code, units, nanos)


def parse_amount(text: str, field: str) -> Money:
    """Parse an amount such as `69.50 USD` or `163 JPY`. Raise InvalidArgument if it is malformed."""
    if not (parts := _AMOUNT.fullmatch(text)):
        raise InvalidArgument.field(field, "must be an amount and a currency, such as 69.50 USD")
    return Money(parts[2], int(Decimal(parts[1]).scaleb(9)))


def is_currency_code(code: str) -> bool:
    return len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()  # noqa: PLR2004


def total(currency_code: str, amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money(currency_code, 0))


def divide_half_even(dividend: int, divisor: int) -> int:
    """Divide and round to the nearest integer, ties to even. The divisor must be positive."""
    quotient, remainder = divmod(dividend, divisor)
    # divmod rounds down, so add 1 if the remainder is over a half, or is exactly a half and the quotient is odd.
    return quotient + (2 * remainder + quotient % 2 > divisor)


def require_decimal(field: str, value: Decimal, *, lowest: Decimal, highest: Decimal, places: int) -> None:
    """Raise ValueError if the value is out of range or has more than `places` decimal places."""
    if not (value.is_finite() and lowest <= value <= highest and value == round(value, places)):
        raise ValueError(f"`{field}` must be from {lowest:f} to {highest:f}, with at most {places} decimal places")


def round_to_minor_unit(amount: Money) -> Money:
    """Round half-even to the currency's minor unit. Raise AmountOutOfRange if the units don't fit into 64 bits."""
    step = 10 ** (9 - _MINOR_UNIT_DIGITS.get(amount.currency_code, 2))
    return Money(amount.currency_code, divide_half_even(amount.total_nanos, step) * step).in_range()


def format_amount(amount: Money) -> str:
    """Format an amount, rounded half-even to its minor unit: `€1,234.50`, `¥163`, `CHF 7.00` (non-breaking space)."""
    code = amount.currency_code
    symbol = _SYMBOLS.get(code) or f"{code}\u00a0"
    sign = "-" if amount.total_nanos < 0 else ""
    value = Decimal(abs(amount.total_nanos)).scaleb(-9)
    return f"{sign}{symbol}{value:,.{_MINOR_UNIT_DIGITS.get(code, 2)}f}"


def format_plainly(amount: Money) -> str:
    """Format an amount like `format_amount`, but with its code and without separators: `1234.50 EUR`, `163 JPY`."""
    code = amount.currency_code
    return f"{Decimal(amount.total_nanos).scaleb(-9):.{_MINOR_UNIT_DIGITS.get(code, 2)}f} {code}"
