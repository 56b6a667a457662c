"""The queries of the exports, the same on SQLite and PostgreSQL: each row of the result is a row of the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy import Select, SQLColumnExpression, Text, case, func, literal, select, type_coerce
from sqlalchemy.orm import aliased
from sqlmodel import col

from employee_api.models import Activity, Task, User
from employee_api.months import in_month

# Spreadsheets treat these as the start of a formula; the last four are the full-width forms of the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Some of them ignore spaces before it: the common one, the no-break space and the ideographic space.
_SPACES = " \u00a0\u3000"
_ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US'


class Table(StrEnum):
    """The tables that can be exported."""

    TASKS = "tasks"
    USERS = "users"
    ACTIVITIES = "activities"


def zoned_timestamp(stored: str, zone: tzinfo) -> str:
    """Format a timestamp as SQLite stores it in a time zone."""
    moment = datetime.fromisoformat(stored).replace(tzinfo=UTC).astimezone(zone)
    return moment.isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Format:
    """How the cells of a file are written.

    Attributes:
        dialect: of the database. On SQLite a time zone needs the function `zoned_timestamp` in the connection.
        defuse_formulas: whether free text that a spreadsheet would run as a formula gets a leading apostrophe.
        zone: the time zone of timestamps; by default UTC.
    """

    dialect: str = "sqlite"
    defuse_formulas: bool = False
    zone: ZoneInfo | None = None

    def text(self, column: Any) -> SQLColumnExpression[Any]:
        text = col(column)
        if not self.defuse_formulas:
            return text
        first = func.substr(func.ltrim(text, _SPACES), 1, 1)
        return case((first.in_(_FORMULA_STARTS), literal("'") + text), else_=text)

    def timestamp(self, column: Any) -> SQLColumnExpression[Any]:
        """Return 2026-01-31T23:59:59.000000Z, as in JSON responses, or 2026-02-01T00:59:59.000000+01:00 in the zone."""
        moment = col(column)
        if self.dialect == "sqlite":
            return func.zoned_timestamp(moment) if self.zone else func.replace(moment, " ", "T", type_=Text) + "Z"
        if self.zone is None:
            return func.to_char(func.timezone("UTC", moment), _ISO + '"Z"')
        return func.to_char(moment, _ISO + "TZH:TZM")


def export_query(table: Table, month: str | None, form: Format) -> Select[Any]:
    """Return the query of the rows created in a month of the time zone, or of all rows, oldest first."""
    query, model = _QUERIES[table](form)
    if month is not None:
        query = query.where(in_month(col(model.created_at), month, form.zone or UTC))
    return query.order_by(col(model.created_at), col(model.id))


def csv_example(table: Table) -> str:
    """Return the header line of an export."""
    query, _model = _QUERIES[table](Format())
    return ",".join(query.selected_columns.keys()) + "\r\n"


_QueryAndModel = tuple[Select[Any], type[Task | User | Activity]]


def _tasks(form: Format) -> _QueryAndModel:
    assignee, reporter = aliased(User), aliased(User)
    columns = {
        "id": col(Task.id),
        "title": form.text(Task.title),
        "description": form.text(Task.description),
        "status": col(Task.status),
        "priority": col(Task.priority),
        "assignee_id": col(Task.assignee_id),
        "assignee_name": form.text(assignee.name),
        "reporter_id": col(Task.reporter_id),
        "reporter_name": form.text(reporter.name),
        "due_date": col(Task.due_date),
        "created_at": form.timestamp(Task.created_at),
        "updated_at": form.timestamp(Task.updated_at),
    }
    query = (
        _labelled(columns)
        .select_from(Task)
        .outerjoin(assignee, col(assignee.id) == col(Task.assignee_id))
        .outerjoin(reporter, col(reporter.id) == col(Task.reporter_id))
    )
    return query, Task


def _users(form: Format) -> _QueryAndModel:
    columns = {
        "id": col(User.id),
        "name": form.text(User.name),
        "email": form.text(User.email),
        "role": form.text(User.role),
        "dept": form.text(User.dept),
        "created_at": form.timestamp(User.created_at),
    }
    return _labelled(columns), User


def _activities(form: Format) -> _QueryAndModel:
    actor = aliased(User)
    columns = {
        "id": col(Activity.id),
        "created_at": form.timestamp(Activity.created_at),
        "actor_id": col(Activity.actor_id),
        "actor_name": form.text(actor.name),
        "action": col(Activity.action),
        "subject_type": col(Activity.subject_type),
        "subject_id": col(Activity.subject_id),
        "subject_name": form.text(Activity.subject_name),
        # Both databases store it as JSON text.
        "changes": type_coerce(col(Activity.changes), Text),
    }
    query = _labelled(columns).select_from(Activity).outerjoin(actor, col(actor.id) == col(Activity.actor_id))
    return query, Activity


_QUERIES = {Table.TASKS: _tasks, Table.USERS: _users, Table.ACTIVITIES: _activities}


def _labelled(columns: Mapping[str, SQLColumnExpression[Any]]) -> Select[Any]:
    return cast("Select[Any]", select(*(column.label(name) for name, column in columns.items())))
