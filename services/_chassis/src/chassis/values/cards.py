"""Finds card numbers in all common forms: with any separators, in any script's digits, and even inside words."""

import re
import unicodedata
from collections.abc import Iterator

from stdnum import ean, luhn

from chassis.errors import InvalidArgument

# Spaces, dashes and invisible characters, which card numbers copied from a web page may contain.
SEPARATORS = re.compile(r"[\s\u00ad\u200b-\u200f\u2010-\u2015\u202a-\u202e\u2060\u2212\ufeff-]+")
_LONG_NUMBER = re.compile(r"[0-9](?<![0-9]{2})(?:[\W_]*+[0-9]){11,}")  # the lookbehind halves the time
_PLAIN_NUMBER = re.compile(r"[0-9](?:[ -]?[0-9]){11,}")
_GROUP = re.compile("[0-9]+")
# Ignore UUIDs, trace ids, SHA-1 and SHA-256: their random digits may look like a card number. Nearly all have a letter,
# so require one.
_UUID = re.compile(
    r"(?<![0-9a-z])((?=[0-9-]{0,35}[a-f])(?:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}|[0-9a-f]{40}|[0-9a-f]{64}))"
    r"(?![0-9a-z])",
    re.IGNORECASE,
)
_ISSUED = re.compile(
    r"4[0-24-8][0-9]{11}|4(?:[0-9]{3}){5,6}"  # Visa, but not 13-digit Austrian (+43) or German (+49) phone numbers
    r"|(?:5[1-5]|2[2-7])[0-9]{14}"  # Mastercard, Mir
    r"|3[47][0-9]{13}"  # American Express
    r"|3(?:0[0-5]|[689][0-9])[0-9]{11,16}"  # Diners Club
    r"|(?:35|50|5[6-9]|6[0-9]|81|82|97)[0-9]{14,17}"  # JCB, Discover, UnionPay, Maestro, RuPay, Troy
)
_FEWEST_DIGITS, _MOST_DIGITS = 13, 19
# Card numbers are written in equal groups (sizes: _SIZES), or in one of _SHAPES. Groups of three are left out,
# because they occur in phone numbers and IP addresses.
_SIZES = (1, 2, 4)
_SHAPES = ([4, 6, 5], [4, 6, 4], [8, 8])


def has_card_number(text: str) -> bool:
    """Return whether `text` has a card number: a known prefix and length, common grouping, and a valid check digit."""
    text, start, end = _with_ascii_digits(text), 0, 0
    # Look only at lines with long numbers, because searching for UUIDs takes most of the time.
    for match in _LONG_NUMBER.finditer(text):
        if match.start() >= end:  # not on the lines found so far
            if _has_card_in(text[start:end]):
                return True
            start = text.rfind("\n", end, match.start()) + 1
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
    return _has_card_in(text[start:end])


def refuse_card_number(value: str, field: str) -> None:
    if has_card_number(value):
        raise InvalidArgument.field(field, "must not contain a card number")


def mask_cards(text: str) -> str:
    """Replace card numbers, and all other numbers of 12 or more digits, which may be mistyped card numbers."""
    digits = _with_ascii_digits(text)
    if not _LONG_NUMBER.search(digits):
        return text
    return "".join(part if _UUID.fullmatch(part) else _LONG_NUMBER.sub(_mask, part) for part in _UUID.split(digits))


def _mask(number: re.Match[str]) -> str:
    return "[number]" if _PLAIN_NUMBER.search(number[0]) or _has_card(number[0]) else number[0]


def _with_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.digit(character, character)) for character in text)


def _has_card_in(text: str) -> bool:
    return any(map(_has_card, _LONG_NUMBER.findall(_UUID.sub("x", text))))


def _has_card(number: str) -> bool:
    return any(
        _ISSUED.fullmatch(digits)
        and luhn.checksum(digits) == 0
        and not (len(digits) == _FEWEST_DIGITS and ean.is_valid(digits))
        for digits in _grouped_digits(number)
    )


def _grouped_digits(number: str) -> Iterator[str]:
    """Yield digit strings that may be card numbers, formed from one group, one of _SHAPES, or equal groups.

    A number in four-digit groups may start at any group, for example after a house number. With one or two digits per
    group, it must start where the group size or separator changes, and use one separator throughout: otherwise, phone
    numbers could match, and long lists of numbers would take too long to check. The last group may be shorter.
    """
    groups, gaps = _GROUP.findall(number), _GROUP.split(number)
    sizes = [*map(len, groups)]
    for first, size in enumerate(sizes):
        for shape in _SHAPES:
            if sizes[first : first + len(shape)] == shape:
                yield "".join(groups[first : first + len(shape)])
        if size not in _SIZES:
            yield groups[first]
            continue
        gap = None if size == max(_SIZES) else gaps[first + 1]
        if first and sizes[first - 1] == size and gaps[first] == gap:
            continue
        digits = groups[first]
        for next_ in range(first + 1, len(groups)):
            if sizes[next_] > size or gap not in {None, gaps[next_]} or len(digits) >= _MOST_DIGITS:
                break
            digits += groups[next_]
            if len(digits) >= _FEWEST_DIGITS:
                yield digits
            if sizes[next_] < size:
                break
