"""Lists in pages, newest first.

A cursor identifies the last row of the previous page, so rows that are added later do not shift the following pages.
"""

import base64
import binascii
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import Field
from sqlalchemy import RowMapping, Select, literal, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import col

from chassis.errors import FieldViolation
from employee_api.errors import BadRequest
from employee_api.fields import Limit
from employee_api.models import Activity, Comment, SignIn, Task, UtcDateTime
from employee_api.schemas import Input

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PageQuery(Input):
    """Which page of a list to return."""

    cursor: str | None = Field(default=None, description="`next` of the previous page")
    limit: Limit = 50


class Page(NamedTuple):
    """The rows of a page, and the cursor of the next page if there is one."""

    rows: Sequence[RowMapping]
    next: str | None


async def fetch_page(
    reads: AsyncEngine, query: Select[Any], model: type[Task | Comment | Activity | SignIn], page: PageQuery
) -> Page:
    """Fetch a page of `query`, which selects `id` and `created_at` of `model`. Raises BadRequest for a bad cursor."""
    key = tuple_(col(model.created_at), col(model.id))
    if page.cursor is not None:
        created_at, row_id = _decode(page.cursor)
        query = query.where(key < tuple_(literal(created_at, UtcDateTime), literal(row_id)))
    newest_first = query.order_by(col(model.created_at).desc(), col(model.id).desc())
    async with reads.connect() as connection:
        # One row more than the limit shows whether another page follows.
        rows = (await connection.execute(newest_first.limit(page.limit + 1))).mappings().all()
    if len(rows) <= page.limit:
        return Page(rows, None)
    last = rows[page.limit - 1]
    return Page(rows[: page.limit], _encode(last["created_at"], last["id"]))


def _encode(created_at: datetime, row_id: uuid.UUID) -> str:
    text = f"{(created_at - _EPOCH) // _MICROSECOND}/{row_id}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode(cursor: str) -> tuple[datetime, uuid.UUID]:
    try:
        microseconds, row_id = base64.b64decode(cursor, b"-_", validate=True).decode().split("/")
        return _EPOCH + int(microseconds) * _MICROSECOND, uuid.UUID(row_id)
    except (binascii.Error, ValueError, OverflowError) as error:
        raise BadRequest("cursor is invalid", [FieldViolation("cursor", "is invalid")]) from error
