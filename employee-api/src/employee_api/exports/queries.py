"""The queries of the exports, the same on SQLite and PostgreSQL: each row of the result is a row of the file."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, cast

from sqlalchemy import Select, SQLColumnExpression, Text, case, func, literal, select, type_coerce
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import aliased
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlmodel import col

from employee_api.models import Activity, Task, User
from employee_api.months import in_month

# Spreadsheets treat these as the start of a formula; the last four are the full-width forms of the first four.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class Table(StrEnum):
    """The tables that can be exported."""

    TASKS = "tasks"
    USERS = "users"
    ACTIVITIES = "activities"


class IsoTimestamp(GenericFunction[str]):
    """SQL function that formats a timestamp as in JSON responses: 2026-01-31T23:59:59.000000Z."""

    type = Text()
    inherit_cache = True


@compiles(IsoTimestamp, "postgresql")
def _on_postgresql(timestamp: IsoTimestamp, compiler: SQLCompiler, **options: Any) -> str:
    value = compiler.process(timestamp.clauses, **options)
    return f"""to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


@compiles(IsoTimestamp, "sqlite")
def _on_sqlite(timestamp: IsoTimestamp, compiler: SQLCompiler, **options: Any) -> str:
    return f"replace({compiler.process(timestamp.clauses, **options)}, ' ', 'T') || 'Z'"


def export_query(table: Table, month: str | None, *, defuse_formulas: bool) -> Select[Any]:
    """Return the query of the rows created in a month, or of all rows, oldest first.

    With `defuse_formulas`, free text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    query, model = _QUERIES[table](defuse_formulas)
    if month is not None:
        query = query.where(in_month(col(model.created_at), month))
    return query.order_by(col(model.created_at), col(model.id))


def csv_example(table: Table) -> str:
    """Return the header line of an export."""
    query, _model = _QUERIES[table](False)
    return ",".join(query.selected_columns.keys()) + "\r\n"


_QueryAndModel = tuple[Select[Any], type[Task | User | Activity]]


def _tasks(defuse_formulas: bool) -> _QueryAndModel:
    assignee, reporter = aliased(User), aliased(User)
    columns = {
        "id": col(Task.id),
        "title": _text(Task.title, defuse_formulas),
        "description": _text(Task.description, defuse_formulas),
        "status": col(Task.status),
        "priority": col(Task.priority),
        "assignee_id": col(Task.assignee_id),
        "assignee_name": _text(assignee.name, defuse_formulas),
        "reporter_id": col(Task.reporter_id),
        "reporter_name": _text(reporter.name, defuse_formulas),
        "due_date": col(Task.due_date),
        "created_at": IsoTimestamp(col(Task.created_at)),
        "updated_at": IsoTimestamp(col(Task.updated_at)),
    }
    query = (
        _labelled(columns)
        .select_from(Task)
        .outerjoin(assignee, col(assignee.id) == col(Task.assignee_id))
        .outerjoin(reporter, col(reporter.id) == col(Task.reporter_id))
    )
    return query, Task


def _users(defuse_formulas: bool) -> _QueryAndModel:
    columns = {
        "id": col(User.id),
        "name": _text(User.name, defuse_formulas),
        "email": _text(User.email, defuse_formulas),
        "role": _text(User.role, defuse_formulas),
        "dept": _text(User.dept, defuse_formulas),
        "created_at": IsoTimestamp(col(User.created_at)),
    }
    return _labelled(columns), User


def _activities(defuse_formulas: bool) -> _QueryAndModel:
    actor = aliased(User)
    columns = {
        "id": col(Activity.id),
        "created_at": IsoTimestamp(col(Activity.created_at)),
        "actor_id": col(Activity.actor_id),
        "actor_name": _text(actor.name, defuse_formulas),
        "action": col(Activity.action),
        "subject_type": col(Activity.subject_type),
        "subject_id": col(Activity.subject_id),
        "subject_name": _text(Activity.subject_name, defuse_formulas),
        # Both databases store it as JSON text.
        "changes": type_coerce(col(Activity.changes), Text),
    }
    query = _labelled(columns).select_from(Activity).outerjoin(actor, col(actor.id) == col(Activity.actor_id))
    return query, Activity


_QUERIES = {Table.TASKS: _tasks, Table.USERS: _users, Table.ACTIVITIES: _activities}


def _labelled(columns: Mapping[str, SQLColumnExpression[Any]]) -> Select[Any]:
    return cast("Select[Any]", select(*(column.label(name) for name, column in columns.items())))


def _text(column: Any, defuse_formulas: bool) -> SQLColumnExpression[Any]:
    text = col(column)
    if not defuse_formulas:
        return text
    return case((func.substr(text, 1, 1).in_(_FORMULA_STARTS), literal("'") + text), else_=text)
