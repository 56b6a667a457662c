"""Finds card numbers in what a program has written, without mistaking random ids for them.

Tests that search for leaks should send numbers from `random_card`. A find is then a leak of this test's card, and no
pattern of "looks like a card number" is needed, which random hex digits match every now and then.
"""

import base64
import re
import secrets
from collections.abc import Iterable, Iterator

# Card schemes allow showing the first eight digits or the last four; more in a row is a leak. Nine also suffice to be
# certain: four cards have 32 windows of nine digits, so a position of random hex digits matches one of them with a
# probability of 32 / 16 ** 9. A test that writes 10,000 such digits finds a card by accident once in 200,000 runs.
_LEAKED_DIGITS = 9
_SEPARATOR_BETWEEN_DIGITS = re.compile(rb"(?<=[0-9])(?:[ -]|\xc2\xa0)(?=[0-9])")
_RUN_OF_DIGITS = re.compile(rb"[0-9]{%d,}" % _LEAKED_DIGITS)
_RUN_OF_HEX = re.compile(rb"(?:3[0-9]){%d,}" % _LEAKED_DIGITS)  # of the ASCII codes of digits


def random_card(prefix: str, length: int = 16) -> str:
    """Return a random number with this prefix and a valid check digit."""
    payload = prefix + "".join(secrets.choice("0123456789") for _ in range(length - len(prefix) - 1))
    return payload + check_digit(payload)


def check_digit(payload: str) -> str:
    """Return the Luhn check digit that completes a number."""
    doubled = (int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(payload)))
    return str(-sum(sum(divmod(number, 10)) for number in doubled) % 10)


def grouped(card: str, separator: str) -> str:
    """Return the number in groups of four digits, as people write it."""
    return separator.join(re.findall("....?", card))


def leaked_cards(data: bytes, cards: Iterable[str]) -> set[str]:
    """Return the cards of which `data` has nine or more consecutive digits.

    The digits may be separated by spaces or dashes and encoded in UTF-8, UTF-16 or hex. Whole numbers are also found in
    base64 and as binary integers.
    """
    digits = b" ".join(_runs_of_digits(data))
    return {card for card in cards if _has_window(card.encode(), digits) or _is_encoded(card, data)}


def _runs_of_digits(data: bytes) -> Iterator[bytes]:
    without_nuls = data.replace(b"\0", b"")  # turns UTF-16 into ASCII
    for text in (data, without_nuls):
        yield from _RUN_OF_DIGITS.findall(_SEPARATOR_BETWEEN_DIGITS.sub(b"", text))
        yield from (bytes.fromhex(run.decode()) for run in _RUN_OF_HEX.findall(text))


def _has_window(card: bytes, digits: bytes) -> bool:
    return any(card[at : at + _LEAKED_DIGITS] in digits for at in range(len(card) - _LEAKED_DIGITS + 1))


def _is_encoded(card: str, data: bytes) -> bool:
    integer = int(card).to_bytes(8, "big").lstrip(b"\0")
    spellings = (card, grouped(card, " "), grouped(card, "-"))
    encoded = (needle for spelling in spellings for needle in _base64_of(spelling.encode()))
    return integer in data or integer[::-1] in data or any(needle in data for needle in encoded)


def _base64_of(text: bytes) -> Iterator[bytes]:
    """Yield what base64 of any data that contains the text must contain, for its three possible alignments."""
    for offset in range(3):
        padded = b"\0" * offset + text
        whole_groups = padded[: len(padded) // 3 * 3]
        # The first group also depends on what precedes the text.
        yield base64.b64encode(whole_groups)[4 if offset else 0 :]
