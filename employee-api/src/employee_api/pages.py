"""Lists in pages, newest first: a cursor names the last row of the page before, so later rows shift nothing."""

import base64
import binascii
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, RowMapping, Select, literal, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import col

from employee_api.errors import BadRequest
from employee_api.models import Activity, Comment, Task, UtcDateTime
from employee_api.rules import month_range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Page(NamedTuple):
    """Rows, and the cursor of the page after them if there is one."""

    rows: Sequence[RowMapping]
    next: str | None


async def fetch_page(
    reads: AsyncEngine, query: Select[Any], model: type[Task | Comment | Activity], cursor: str | None, limit: int
) -> Page:
    """Fetch the page of `query` after `cursor`. Raises BadRequest for a cursor that this API never gave out."""
    key = tuple_(col(model.created_at), col(model.id))
    if cursor is not None:
        created_at, row_id = _decode(cursor)
        query = query.where(key < tuple_(literal(created_at, UtcDateTime), literal(row_id)))
    newest_first = query.order_by(col(model.created_at).desc(), col(model.id).desc())
    async with reads.connect() as connection:
        # One row more than is asked for tells whether another page follows.
        rows = (await connection.execute(newest_first.limit(limit + 1))).mappings().all()
    if len(rows) <= limit:
        return Page(rows, None)
    return Page(rows[:limit], _encode(rows[limit - 1]["created_at"], rows[limit - 1]["id"]))


def in_month(column: Any, month: str) -> ColumnElement[bool]:
    """The condition that a moment lies in a month `YYYY-MM` of UTC."""
    first, last = month_range(month)
    condition: ColumnElement[bool] = column.between(first, last)
    return condition


def _encode(created_at: datetime, row_id: uuid.UUID) -> str:
    text = f"{(created_at - _EPOCH) // _MICROSECOND}/{row_id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode(cursor: str) -> tuple[datetime, uuid.UUID]:
    try:
        microseconds, row_id = base64.b64decode(cursor, b"-_", validate=True).decode().split("/")
        return _EPOCH + int(microseconds) * _MICROSECOND, uuid.UUID(row_id)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise BadRequest("Invalid value for cursor") from error
