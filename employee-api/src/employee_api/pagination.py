"""Splits lists into pages. A cursor identifies the last row of a page, so new rows don't shift the following pages."""

import base64
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson
from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, Select, SQLColumnExpression, and_, literal, or_, tuple_
from sqlmodel import col

from chassis.errors import FieldViolation
from employee_api.database import Repository
from employee_api.errors import BadRequest
from employee_api.fields import Limit, Moment
from employee_api.models import Entity
from employee_api.schemas import Input, Output

OutputT = TypeVar("OutputT", bound=Output)

TIMESTAMPS: TypeAdapter[datetime] = TypeAdapter(Moment)
_CURSOR: TypeAdapter[tuple[str, Any, uuid.UUID]] = TypeAdapter(tuple[str, Any, uuid.UUID])


class PageQuery(Input):
    cursor: str | None = Field(default=None, description="`next` of the previous page")
    limit: Limit = 50


@dataclass(frozen=True)
class SortKey:
    """A key to sort a list by. Rows with the same value are sorted by id; rows without a value come last.

    Attributes:
        name: the key's name in cursors. A cursor is valid only for the key and direction that it was created with.
        expression: the SQL expression to sort by.
        values: validates values in cursors. Clients may forge cursors, so refuse values that the database can't store.
        optional: whether the expression may be NULL.
    """

    name: str
    expression: SQLColumnExpression[Any]
    values: TypeAdapter[Any]
    optional: bool = False
    descending: bool = True

    def sort(self, query: Select[Any], row_id: Any) -> Select[Any]:
        by_value, by_id = (key.desc() if self.descending else key.asc() for key in (self.expression, row_id))
        return query.order_by(by_value.nulls_last() if self.optional else by_value, by_id)

    def follows(self, cursor: str, row_id: Any) -> ColumnElement[bool]:
        """Return the SQL condition for rows after the cursor's row. Raise BadRequest if the cursor is invalid."""
        value, last_id = self._decode(cursor)
        by_value: Any = self.expression
        if value is None:
            return and_(by_value.is_(None), row_id < last_id if self.descending else row_id > last_id)
        row, last = tuple_(by_value, row_id), tuple_(literal(value, by_value.type), literal(last_id))
        following = row < last if self.descending else row > last
        return or_(following, by_value.is_(None)) if self.optional else following

    def cursor(self, row: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([self._order, row["sort_value"], row["id"]])).decode()

    @property
    def _order(self) -> str:
        return f"{self.name} {'desc' if self.descending else 'asc'}"

    def _decode(self, cursor: str) -> tuple[Any, uuid.UUID]:
        try:
            # orjson refuses lone surrogates, which pydantic would accept.
            raw = orjson.loads(base64.b64decode(cursor, b"-_", validate=True))
            order, value, row_id = _CURSOR.validate_python(raw)
            if value is not None or not self.optional:
                value = self.values.validate_python(value)
        except (ValueError, OverflowError):
            order = None
        if order != self._order:
            raise BadRequest("cursor is invalid", [FieldViolation("cursor", "is invalid")])
        return value, row_id


async def fetch_page(
    repository: Repository,
    query: Select[Any],
    model: type[Entity],
    page: PageQuery,
    output: type[OutputT],
    *,
    key: SortKey | None = None,
) -> OutputT:
    """Return a page of the query's rows, newest first by default. The query must select the `id` of `model`."""
    row_id, key = col(model.id), key or SortKey("created_at", col(model.created_at), TIMESTAMPS)
    query = key.sort(query.add_columns(key.expression.label("sort_value")), row_id)
    if page.cursor is not None:
        query = query.where(key.follows(page.cursor, row_id))
    # Fetch one row beyond the limit to find out whether another page follows.
    rows = await repository.find_rows(query.limit(page.limit + 1))
    following = key.cursor(rows[page.limit - 1]) if len(rows) > page.limit else None
    return output.model_validate({"items": rows[: page.limit], "next": following})
