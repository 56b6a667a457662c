"""Single values as they come in and go out over HTTP.

Text never holds NUL, which PostgreSQL can't store; the JSON parser refuses lone surrogates before it gets here.
"""

import re
import uuid
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, StringConstraints

from employee_api.rules import month_range, parse_id

_NO_NUL = r"^[^\x00]*$"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MAX_PASSWORD_LENGTH = 4096  # what passlib takes

GivenText = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=_NO_NUL)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000, pattern=_NO_NUL)]
Email = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=320, pattern=_NO_NUL)]
NewPassword = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=MAX_PASSWORD_LENGTH, pattern=_NO_NUL)
]
ShortText = Annotated[str, StringConstraints(strict=True, max_length=1000, pattern=_NO_NUL)]
LongText = Annotated[str, StringConstraints(strict=True, max_length=20_000, pattern=_NO_NUL)]
CommentText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=20_000, pattern=_NO_NUL)]
Title = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=500, pattern=_NO_NUL)]


def _canonical_id(value: Any) -> Any:
    """Only the form with hyphens: `uuid.UUID` takes braces, `urn:uuid:` and more."""
    if isinstance(value, str) and parse_id(value) is None:
        raise ValueError("must be a UUID")
    return value


def _calendar_date(value: Any) -> date:
    """Only `YYYY-MM-DD`: pydantic would take numbers and moments too."""
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError("must be YYYY-MM-DD")
    return date.fromisoformat(value)


def _month(value: str) -> str:
    month_range(value)
    return value


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


Id = Annotated[uuid.UUID, BeforeValidator(_canonical_id)]
CalendarDate = Annotated[date, BeforeValidator(_calendar_date)]
Moment = Annotated[
    datetime,
    PlainSerializer(_iso, return_type=str, when_used="json"),
    Field(json_schema_extra={"format": "date-time"}),
]
Month = Annotated[
    str, AfterValidator(_month), Field(json_schema_extra={"pattern": "^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])$"})
]
Limit = Annotated[int, Field(ge=1, le=200)]
