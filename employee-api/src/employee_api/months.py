"""Calendar months in UTC, written `YYYY-MM`."""

import re
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


def month_range(month: str) -> tuple[datetime, datetime]:
    """Return the first and the last moment of a month, both inclusive.

    Raises ValueError for any other format, and for the year 0000.
    """
    match = _MONTH.fullmatch(month)
    if match is None:
        raise ValueError("month must be YYYY-MM")
    year, number = int(match[1]), int(match[2])
    first = datetime(year, number, 1, tzinfo=UTC)
    if (year, number) == (9999, 12):  # the month after it can't be represented
        return first, datetime.max.replace(tzinfo=UTC)
    following = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)
    return first, following - datetime.resolution


def in_month(column: Any, month: str) -> ColumnElement[bool]:
    """Return the SQL condition that a timestamp column lies in a month."""
    first, last = month_range(month)
    condition: ColumnElement[bool] = column.between(first, last)
    return condition
