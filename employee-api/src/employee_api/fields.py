"""Types for request and response fields.

Text must not contain control characters or card numbers; passwords may contain anything except NUL. The JSON parser
rejects lone surrogates.
"""

import re
import unicodedata
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo
from itertools import groupby
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints
from pydantic_core import PydanticCustomError
from sqlalchemy import ColumnElement

from chassis.values.cards import has_card_number
from chassis.values.fields import CONTROL

# PostgreSQL can't store NUL characters.
_NO_NUL = r"^[^\x00]*$"
_NO_CONTROL = rf"^[^{CONTROL}]*$"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})", re.IGNORECASE
)
_MONTH = "(?!0000)[0-9]{4}-(0[1-9]|1[0-2])"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
BROKEN_RULE = "broken_rule"
_MAX_SEARCH_WORDS = 10
# Searches compose text, in time quadratic in the longest run of combining characters. Unicode's stream-safe format has
# the same limit.
_MAX_MARKS = 30
MAX_EMAIL_LENGTH = 320
MAX_PASSWORD_LENGTH = 4096  # passlib's limit


def broken_rule(rule: str) -> PydanticCustomError:
    """Return a validation error whose `rule`, such as "must be a UUID", is shown to clients.

    The texts of other validation errors are not shown, because they may contain the client's value.
    """
    return PydanticCustomError(BROKEN_RULE, "{rule}", {"rule": rule})


def require(is_valid: Callable[[str], object], rule: str) -> AfterValidator:
    """Return a validator for text. If `is_valid` returns a falsy value, validation fails and clients see `rule`."""

    def validate(text: str) -> str:
        if not is_valid(text):
            raise broken_rule(rule)
        return text

    return AfterValidator(validate)


def _is_combining(character: str) -> bool:
    return unicodedata.combining(unicodedata.normalize("NFD", character)[0]) > 0


def _has_few_marks(text: str) -> bool:
    runs = groupby(text, _is_combining)
    return text.isascii() or all(len([*run]) <= _MAX_MARKS for are_marks, run in runs if are_marks)


def _text(min_length: int = 0, max_length: int | None = None, pattern: str = _NO_CONTROL) -> StringConstraints:
    return StringConstraints(strict=True, min_length=min_length or None, max_length=max_length, pattern=pattern)


_NO_CARD = require(lambda text: not has_card_number(text), "must not contain a card number")
_FEW_MARKS = require(_has_few_marks, f"must not contain more than {_MAX_MARKS} combining characters in a row")
NonEmptyText = Annotated[str, _text(1, pattern=_NO_NUL)]
Name = Annotated[str, _text(1, 1000), _NO_CARD, Field(examples=["Grace Hopper"])]
Email = Annotated[str, _text(1, MAX_EMAIL_LENGTH), _NO_CARD, Field(examples=["grace@example.com"])]
NewPassword = Annotated[str, _text(1, MAX_PASSWORD_LENGTH, _NO_NUL), Field(examples=["nine brown otters swim"])]
TokenName = Annotated[str, _text(1, 100), _NO_CARD]
ShortText = Annotated[str, _text(0, 1000), _NO_CARD]
SortedTitle = Annotated[str, _text(0, 1500)]  # composing characters (NFC) may triple a title's length
Role = Annotated[str, _text(1, 1000), _NO_CARD, Field(examples=["designer"])]
LongText = Annotated[str, _text(0, 20_000), _NO_CARD, _FEW_MARKS, Field(examples=["The ferns need most."])]
CommentText = Annotated[str, _text(1, 20_000), _NO_CARD, Field(examples=["Done, except for the cactus."])]
Title = Annotated[str, _text(1, 500), _NO_CARD, Field(examples=["Water the plants"])]


def parse_id(text: str) -> uuid.UUID | None:
    """Parse an id in its canonical form, with hyphens; return None for anything else."""
    return uuid.UUID(text) if _UUID.fullmatch(text) else None


def _require_canonical_id(value: Any) -> Any:
    # `uuid.UUID` would also accept braces, `urn:uuid:` and more.
    if isinstance(value, str) and parse_id(value) is None:
        raise broken_rule("must be a UUID")
    return value


def _parse_calendar_date(value: Any) -> date:
    # Unlike pydantic, refuse numbers and timestamps.
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise broken_rule("must be YYYY-MM-DD")
    try:
        return date.fromisoformat(value)
    except ValueError as error:
        raise broken_rule("must be a date of the calendar") from error


def _parse_moment(value: Any) -> datetime:
    # Unlike pydantic, refuse numbers, and timestamps without a time zone.
    try:
        if isinstance(value, str) and _MOMENT.fullmatch(value):
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise broken_rule("must be a date and time with a time zone, such as 2026-01-31T12:00:00Z")


def email_key(email: str) -> str:
    """Normalize an e-mail address for comparisons: case-folded, in NFC, and without surrounding white space."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", email.strip()).casefold())


def normalize_password(password: str) -> str:
    """Convert a password to NFC before hashing, because the same characters may arrive composed or decomposed."""
    return unicodedata.normalize("NFC", password)


def format_timestamp(timestamp: datetime) -> str:
    """Format a UTC timestamp for responses, such as 2026-01-31T12:00:00.000000Z."""
    return timestamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


Id = Annotated[uuid.UUID, BeforeValidator(_require_canonical_id)]
VisibleEmail = Annotated[Email, require(email_key, "must not be white space")]
CalendarDate = Annotated[date, BeforeValidator(_parse_calendar_date)]
Moment = Annotated[datetime, BeforeValidator(_parse_moment)]
Timestamp = Annotated[
    datetime,
    PlainSerializer(format_timestamp, return_type=str, when_used="json"),
    Field(json_schema_extra={"format": "date-time"}),
]
Month = Annotated[
    str,
    require(re.compile(_MONTH).fullmatch, "must be YYYY-MM"),
    Field(json_schema_extra={"pattern": f"^{_MONTH}$"}, examples=["2026-03"]),
]
SearchText = Annotated[
    str,
    _text(1, 200),
    require(lambda text: len(text.split()) <= _MAX_SEARCH_WORDS, f"has too many words: at most {_MAX_SEARCH_WORDS}"),
    Field(examples=["water plants"]),
]
MAX_PAGE_SIZE = 200
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)]


def month_range(month: str, zone: tzinfo = UTC) -> tuple[datetime, datetime]:
    """Return the first and last moment of a month (YYYY-MM) in a time zone, converted to UTC."""
    year, number = map(int, month.split("-"))
    first = _in_utc(datetime(year, number, 1, tzinfo=zone))
    if (year, number) == (9999, 12):  # `datetime` can't represent the following month
        return first, datetime.max.replace(tzinfo=UTC)
    following = _in_utc(datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone))
    return first, following - datetime.resolution


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # east of Greenwich, year 1 begins before the earliest UTC `datetime`
        return datetime.min.replace(tzinfo=UTC)


def in_month(column: Any, month: str, zone: tzinfo = UTC) -> ColumnElement[bool]:
    return cast("ColumnElement[bool]", column.between(*month_range(month, zone)))
