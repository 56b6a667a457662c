"""Card rules: number, expiry and security code formats, brands, and reasons to decline."""

import re
from collections.abc import Collection
from datetime import date
from enum import StrEnum

from stdnum import luhn

from chassis.errors import InvalidArgument
from chassis.values.fields import require_between
from chassis.values.orders import Card

_NUMBER = re.compile(r"[0-9]{12,19}")


class Brand(StrEnum):
    """A card brand. The values are the names that the setting ACCEPTED_BRANDS may list."""

    VISA = "visa"
    MASTERCARD = "mastercard"
    AMEX = "amex"
    DISCOVER = "discover"
    JCB = "jcb"
    DINERS = "diners"


# Each row holds a brand, the first and last prefix of a range (equally long), and the valid card number lengths.
# Source: the ISO/IEC 7812 issuer ranges that the card schemes publish.
_RANGES: tuple[tuple[Brand, str, str, Collection[int]], ...] = (
    (Brand.VISA, "4", "4", (13, 16, 19)),
    (Brand.MASTERCARD, "51", "55", (16,)),
    (Brand.MASTERCARD, "2221", "2720", (16,)),
    (Brand.AMEX, "34", "34", (15,)),
    (Brand.AMEX, "37", "37", (15,)),
    (Brand.DISCOVER, "6011", "6011", range(16, 20)),
    (Brand.DISCOVER, "644", "659", range(16, 20)),
    (Brand.JCB, "3528", "3589", range(16, 20)),
    (Brand.DINERS, "300", "305", range(14, 20)),
    (Brand.DINERS, "36", "36", range(14, 20)),
    (Brand.DINERS, "38", "39", range(14, 20)),
)


class CardNumberInvalid(InvalidArgument):
    """The card number is not 12 to 19 digits long, or its check digit is wrong."""


class Decline(StrEnum):
    """Why a well-formed card is declined. Callers receive the values as error reasons."""

    BRAND_NOT_ACCEPTED = "BRAND_NOT_ACCEPTED"
    CARD_EXPIRED = "CARD_EXPIRED"


def check_format(card: Card, path: str) -> None:
    """Raise InvalidArgument for the first malformed field. `path` is the request field that contains the card."""
    if not _NUMBER.fullmatch(card.digits):
        raise CardNumberInvalid.field(f"{path}.credit_card_number", "must be 12 to 19 digits")
    if not luhn.is_valid(card.digits):
        raise CardNumberInvalid.field(f"{path}.credit_card_number", "must have a valid check digit")
    require_between(card.month, f"{path}.credit_card_expiration_month", 1, 12)
    require_between(card.year, f"{path}.credit_card_expiration_year", 2000, 2099)
    require_between(card.cvv, f"{path}.credit_card_cvv", 0, 9999)


def decline_reason(card: Card, brand: Brand | None, accepted: Collection[Brand], today: date) -> Decline | None:
    """Return why a well-formed card is declined, or None if the card can be charged."""
    if brand not in accepted:
        return Decline.BRAND_NOT_ACCEPTED
    if (card.year, card.month) < (today.year, today.month):
        return Decline.CARD_EXPIRED
    return None


def brand_of(digits: str) -> Brand | None:
    """Return the brand that issues card numbers with this prefix and length, or None if no brand does."""
    for brand, first, last, lengths in _RANGES:
        if len(digits) in lengths and first <= digits[: len(first)] <= last:
            return brand
    return None
