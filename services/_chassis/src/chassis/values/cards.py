import re
from itertools import accumulate

from stdnum import luhn

from chassis.errors import InvalidArgument

# Spaces, dashes and invisible characters, which card numbers copied from a web page may contain.
SEPARATORS = re.compile(r"[\s\u00ad\u200b-\u200f\u2010-\u2015\u202a-\u202e\u2060\u2212\ufeff-]+")
_LONG_NUMBER = re.compile(rf"[0-9](?:(?:{SEPARATORS.pattern})?[0-9]){{12,}}")
# Ignore UUIDs, because e-mail addresses may contain them and their random digits may look like a card number.
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)
_MIN_DIGITS, _MAX_DIGITS = 13, 19


def has_card_number(text: str) -> bool:
    """Return whether `text` contains 13 to 19 digits, possibly in groups, with a valid check digit."""
    return any(_has_card(SEPARATORS.split(number)) for number in _LONG_NUMBER.findall(_UUID.sub("x", text)))


def refuse_card_number(value: str, field: str) -> None:
    if has_card_number(value):
        raise InvalidArgument.field(field, "must not contain a card number")


def _has_card(groups: list[str]) -> bool:
    # A card number may begin at any group of digits, for example after a house number.
    return any(
        _MIN_DIGITS <= len(digits) <= _MAX_DIGITS and luhn.is_valid(digits)
        for first in range(len(groups))
        for digits in accumulate(groups[first : first + _MAX_DIGITS])
    )
