"""Lists in pages, newest first unless sorted otherwise.

A cursor identifies the last row of the previous page, so rows that are added later do not shift the following pages.
"""

import base64
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import AfterValidator, AwareDatetime, Field, TypeAdapter
from sqlalchemy import ColumnElement, RowMapping, Select, SQLColumnExpression, and_, literal, or_, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlmodel import col

from chassis.errors import FieldViolation
from employee_api.errors import BadRequest
from employee_api.fields import Limit
from employee_api.models import Activity, Comment, SignIn, Task
from employee_api.schemas import Input, Output

OutputT = TypeVar("OutputT", bound=Output)

TIMESTAMPS: TypeAdapter[datetime] = TypeAdapter(
    Annotated[AwareDatetime, AfterValidator(lambda timestamp: timestamp.astimezone(UTC))]
)
_CURSOR: TypeAdapter[tuple[str, Any, uuid.UUID]] = TypeAdapter(tuple[str, Any, uuid.UUID])


class PageQuery(Input):
    """Which page of a list to return."""

    cursor: str | None = Field(default=None, description="`next` of the previous page")
    limit: Limit = 50


@dataclass(frozen=True)
class SortKey:
    """What a list is sorted by, before the id; rows without a value come last.

    Attributes:
        name: identifies the key in cursors, which work with one key and direction only.
        expression: the SQL expression.
        values: validates its values. Cursors are input: it must refuse what the database can't store.
        optional: whether rows may have no value.
    """

    name: str
    expression: SQLColumnExpression[Any]
    values: TypeAdapter[Any]
    optional: bool = False


@dataclass(frozen=True)
class _Order:
    by_id: SQLColumnExpression[uuid.UUID]
    key: SortKey
    descending: bool

    @property
    def name(self) -> str:
        return f"{self.key.name} {'desc' if self.descending else 'asc'}"

    def sort(self, query: Select[Any]) -> Select[Any]:
        by_value, by_id = (key.desc() if self.descending else key.asc() for key in (self.key.expression, self.by_id))
        return query.order_by(by_value.nulls_last() if self.key.optional else by_value, by_id)

    def follows(self, cursor: str) -> ColumnElement[bool]:
        """Return the condition that a row comes after the one that the cursor identifies."""
        value, row_id = self._decode(cursor)
        by_value: Any = self.key.expression
        if value is None:
            return and_(by_value.is_(None), self.by_id < row_id if self.descending else self.by_id > row_id)
        row, last = tuple_(by_value, self.by_id), tuple_(literal(value, by_value.type), literal(row_id))
        following = row < last if self.descending else row > last
        return or_(following, by_value.is_(None)) if self.key.optional else following

    def cursor(self, row: RowMapping) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([self.name, row["sort_value"], row["id"]])).decode()

    def _decode(self, cursor: str) -> tuple[Any, uuid.UUID]:
        try:
            # orjson refuses lone surrogates, which pydantic would accept.
            raw = orjson.loads(base64.b64decode(cursor, b"-_", validate=True))
            name, value, row_id = _CURSOR.validate_python(raw)
            if value is not None or not self.key.optional:
                value = self.key.values.validate_python(value)
        except (ValueError, OverflowError):
            name = None
        if name != self.name:
            raise BadRequest("cursor is invalid", [FieldViolation("cursor", "is invalid")])
        return value, row_id


async def fetch_page(
    reads: AsyncEngine,
    query: Select[Any],
    model: type[Task | Comment | Activity | SignIn],
    page: PageQuery,
    output: type[OutputT],
    *,
    key: SortKey | None = None,
    descending: bool = True,
) -> OutputT:
    """Return a page of `query`, which selects the `id` of `model`, as an `output` with `items` and `next`.

    By default the newest rows come first. Raises BadRequest for a bad cursor.
    """
    order = _Order(col(model.id), key or SortKey("created_at", col(model.created_at), TIMESTAMPS), descending)
    query = query.add_columns(order.key.expression.label("sort_value"))
    if page.cursor is not None:
        query = query.where(order.follows(page.cursor))
    async with reads.connect() as connection:
        # One row more than the limit shows whether another page follows.
        rows = (await connection.execute(order.sort(query).limit(page.limit + 1))).mappings().all()
    following = order.cursor(rows[page.limit - 1]) if len(rows) > page.limit else None
    return output.model_validate({"items": rows[: page.limit], "next": following})
