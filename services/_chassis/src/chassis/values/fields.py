"""Checks for request fields. They raise InvalidArgument with the field's path, but never quote its value."""

import re
from collections.abc import Sized

from chassis.errors import InvalidArgument
from chassis.values.cards import refuse_card_number

# Allow only visible ASCII, because gRPC metadata may change other characters.
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MAX_REASON_LENGTH = 200
_SECONDS = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,9})?")

# Characters that no text may contain, because they control terminals or reorder text. Hebrew and Arabic direction
# marks are allowed. For use inside [...] in a regular expression.
CONTROL = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
# Invisible Hangul letters, which `isalnum` would count as letters.
_FILLERS = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0"))
_CONTROL = re.compile(rf"[\t\n\r{CONTROL}]")


def has_control(text: str) -> bool:
    """Return whether `text` contains a control character. Tabs, line feeds and carriage returns also count."""
    return _CONTROL.search(text) is not None


def require_text(value: str, field: str, *, max_length: int) -> str:
    """Require 1 to `max_length` code points. In requests, `check_text` has already rejected control characters."""
    if not value:
        raise InvalidArgument.field(field, "must not be empty")
    return limit_text(value, field, max_length=max_length)


def require_words(value: str, field: str, *, max_length: int) -> str:
    """Require at most `max_length` code points, including at least one visible letter or digit."""
    require_text(value.strip() and value, field, max_length=max_length)
    if not any(map(str.isalnum, value.translate(_FILLERS))):
        raise InvalidArgument.field(field, "must contain a letter or a digit")
    return value


def signed_reason(by: str, reason: str, field: str = "reason") -> str:
    """Return `by: reason`, which says who decided and why. Raise InvalidArgument unless both contain words."""
    for name, value in (("by", by), (field, reason)):
        require_words(value, name, max_length=_MAX_REASON_LENGTH)
    return f"{by}: {reason}"


def limit_text(value: str, field: str, *, max_length: int) -> str:
    if len(value) > max_length:
        raise InvalidArgument.field(field, f"must have at most {max_length} characters")
    return value


def limit_count(values: Sized, field: str, *, max_count: int) -> None:
    if len(values) > max_count:
        raise InvalidArgument.field(field, f"must have at most {max_count} entries")


def require_between(value: int, field: str, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise InvalidArgument.field(field, f"must lie between {lowest} and {highest}")
    return value


def require_present(present: bool, field: str) -> None:
    if not present:
        raise InvalidArgument.field(field, "must be given")


def parse_idempotency_key(value: str, field: str = "idempotency-key") -> str:
    if not _IDEMPOTENCY_KEY.fullmatch(value):
        raise InvalidArgument.field(field, "must be 1 to 255 visible ASCII characters")
    refuse_card_number(value, field)
    return value


def is_seconds(value: str) -> bool:
    """Return whether a metadata value is a Unix time."""
    return _SECONDS.fullmatch(value) is not None


def parse_seconds(value: str, field: str) -> float:
    if not is_seconds(value):
        raise InvalidArgument.field(field, "must be seconds since 1970")
    return float(value)
