"""Calendar months, written `YYYY-MM`."""

import re
from datetime import UTC, datetime, tzinfo
from typing import Any

from sqlalchemy import ColumnElement

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


def month_range(month: str, zone: tzinfo = UTC) -> tuple[datetime, datetime]:
    """Return the first and the last moment of a month in a time zone, both inclusive, in UTC.

    Raises ValueError for any other format, and for the year 0000.
    """
    match = _MONTH.fullmatch(month)
    if match is None:
        raise ValueError("month must be YYYY-MM")
    year, number = int(match[1]), int(match[2])
    first = _in_utc(datetime(year, number, 1, tzinfo=zone))
    if (year, number) == (9999, 12):  # the month after it can't be represented
        return first, datetime.max.replace(tzinfo=UTC)
    following = _in_utc(datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone))
    return first, following - datetime.resolution


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # the first moment of the year 1, east of Greenwich
        return datetime.min.replace(tzinfo=UTC)


def in_month(column: Any, month: str, zone: tzinfo = UTC) -> ColumnElement[bool]:
    """Return the SQL condition that a timestamp column lies in a month."""
    first, last = month_range(month, zone)
    condition: ColumnElement[bool] = column.between(first, last)
    return condition
