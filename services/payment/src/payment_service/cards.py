"""Card rules: the format of number, expiry and security code, the brand of a number, and reasons to decline."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import cached_property

from stdnum import luhn

from chassis.errors import FieldViolation, InvalidArgument

_NUMBER = re.compile(r"[0-9]{12,19}")
_SEPARATORS = str.maketrans("", "", " -")
_YEARS = range(2000, 2100)
_MONTHS = range(1, 13)
_SECURITY_CODES = range(10_000)


class Brand(StrEnum):
    """A card scheme, as ACCEPTED_BRANDS spells it."""

    VISA = "visa"
    MASTERCARD = "mastercard"
    AMEX = "amex"
    DISCOVER = "discover"
    JCB = "jcb"
    DINERS = "diners"


@dataclass(frozen=True, slots=True)
class _Range:
    """Card numbers of one brand: of one of the lengths, with a prefix from `first` to `last` (equally long)."""

    brand: Brand
    first: str
    last: str
    lengths: frozenset[int]

    def matches(self, digits: str) -> bool:
        return len(digits) in self.lengths and self.first <= digits[: len(self.first)] <= self.last


# Source: ISO/IEC 7812 issuer ranges as the schemes publish them.
_RANGES = (
    _Range(Brand.VISA, "4", "4", frozenset({13, 16, 19})),
    _Range(Brand.MASTERCARD, "51", "55", frozenset({16})),
    _Range(Brand.MASTERCARD, "2221", "2720", frozenset({16})),
    _Range(Brand.AMEX, "34", "34", frozenset({15})),
    _Range(Brand.AMEX, "37", "37", frozenset({15})),
    _Range(Brand.DISCOVER, "6011", "6011", frozenset(range(16, 20))),
    _Range(Brand.DISCOVER, "644", "659", frozenset(range(16, 20))),
    _Range(Brand.JCB, "3528", "3589", frozenset(range(16, 20))),
    _Range(Brand.DINERS, "300", "305", frozenset(range(14, 20))),
    _Range(Brand.DINERS, "36", "36", frozenset(range(14, 20))),
    _Range(Brand.DINERS, "38", "39", frozenset(range(14, 20))),
)


class CardNumberInvalid(InvalidArgument):
    """The number is not 12 to 19 digits, or its check digit is wrong."""


class Decline(StrEnum):
    """Why a well-formed card is declined. The values are reasons on the wire."""

    BRAND_NOT_ACCEPTED = "BRAND_NOT_ACCEPTED"
    CARD_EXPIRED = "CARD_EXPIRED"


@dataclass(frozen=True)
class Card:
    """A card as the caller sent it, not validated. Number and cvv are excluded from its repr.

    Attributes:
        number: digits, optionally separated by spaces or `-`.
        cvv: the security code as a number: 012 is 12.
        year: of the expiry, four digits.
        month: of the expiry; the card is valid through the last day of this month.
    """

    number: str = field(repr=False)
    cvv: int = field(repr=False)
    year: int
    month: int

    @cached_property
    def digits(self) -> str:
        """The number without separators."""
        return self.number.translate(_SEPARATORS)


def check_format(card: Card, path: str) -> None:
    """Raise InvalidArgument for the first field, named under `path`, that no issued card could have."""
    if not _NUMBER.fullmatch(card.digits):
        raise _number_invalid(path, "must be 12 to 19 digits")
    if not luhn.is_valid(card.digits):
        raise _number_invalid(path, "must have a valid check digit")
    if card.month not in _MONTHS:
        raise InvalidArgument.field(f"{path}.credit_card_expiration_month", "must lie between 1 and 12")
    if card.year not in _YEARS:
        raise InvalidArgument.field(f"{path}.credit_card_expiration_year", "must lie between 2000 and 2099")
    if card.cvv not in _SECURITY_CODES:
        raise InvalidArgument.field(f"{path}.credit_card_cvv", "must lie between 0 and 9999")


def decline_reason(card: Card, brand: Brand | None, accepted: Collection[Brand], today: date) -> Decline | None:
    """Return why a well-formed card of a brand is declined; None if it can be charged."""
    if brand not in accepted:
        return Decline.BRAND_NOT_ACCEPTED
    if (card.year, card.month) < (today.year, today.month):
        return Decline.CARD_EXPIRED
    return None


def brand_of(digits: str) -> Brand | None:
    """Return the brand of a number by its prefix and length; None if no brand issues such numbers."""
    return next((numbers.brand for numbers in _RANGES if numbers.matches(digits)), None)


def _number_invalid(path: str, rule: str) -> CardNumberInvalid:
    return CardNumberInvalid(FieldViolation(f"{path}.credit_card_number", rule))
