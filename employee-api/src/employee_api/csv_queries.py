"""What each export holds: one query a kind, the same on SQLite and PostgreSQL, a row of it a row of the file."""

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
from employee_api.pages import in_month
from employee_api.rules import FORMULA_STARTS


class Kind(StrEnum):
    """What can be exported."""

    TASKS = "tasks"
    USERS = "users"
    ACTIVITIES = "activities"


class IsoMoment(GenericFunction[str]):
    """A moment in UTC as the API writes it elsewhere: 2026-01-31T23:59:59.000000Z."""

    type = Text()
    inherit_cache = True


@compiles(IsoMoment, "postgresql")
def _on_postgresql(moment: IsoMoment, compiler: SQLCompiler, **options: Any) -> str:
    value = compiler.process(moment.clauses, **options)
    return f"""to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


@compiles(IsoMoment, "sqlite")
def _on_sqlite(moment: IsoMoment, compiler: SQLCompiler, **options: Any) -> str:
    return f"replace({compiler.process(moment.clauses, **options)}, ' ', 'T') || 'Z'"


def export_query(kind: Kind, month: str | None, *, defuse: bool) -> Select[Any]:
    """Build the query of an export: rows created in a month of UTC, or all, the oldest first.

    With `defuse` a free text that a spreadsheet would run as a formula gets a leading apostrophe.
    """
    query, model = _QUERIES[kind](defuse)
    if month is not None:
        query = query.where(in_month(col(model.created_at), month))
    return query.order_by(col(model.created_at), col(model.id))


Built = tuple[Select[Any], type[Task | User | Activity]]


def _tasks(defuse: bool) -> Built:
    assignee, reporter = aliased(User), aliased(User)
    columns = {
        "id": col(Task.id),
        "title": _text(Task.title, defuse),
        "description": _text(Task.description, defuse),
        "status": col(Task.status),
        "priority": col(Task.priority),
        "assignee_id": col(Task.assignee_id),
        "assignee_name": _text(assignee.name, defuse),
        "reporter_id": col(Task.reporter_id),
        "reporter_name": _text(reporter.name, defuse),
        "due_date": col(Task.due_date),
        "created_at": IsoMoment(col(Task.created_at)),
        "updated_at": IsoMoment(col(Task.updated_at)),
    }
    query = (
        _labelled(columns)
        .select_from(Task)
        .outerjoin(assignee, col(assignee.id) == col(Task.assignee_id))
        .outerjoin(reporter, col(reporter.id) == col(Task.reporter_id))
    )
    return query, Task


def _users(defuse: bool) -> Built:
    columns = {
        "id": col(User.id),
        "name": _text(User.name, defuse),
        "email": _text(User.email, defuse),
        "role": _text(User.role, defuse),
        "dept": _text(User.dept, defuse),
        "created_at": IsoMoment(col(User.created_at)),
    }
    return _labelled(columns), User


def _activities(defuse: bool) -> Built:
    actor = aliased(User)
    columns = {
        "id": col(Activity.id),
        "created_at": IsoMoment(col(Activity.created_at)),
        "actor_id": col(Activity.actor_id),
        "actor_name": _text(actor.name, defuse),
        "action": col(Activity.action),
        "subject_type": col(Activity.subject_type),
        "subject_id": col(Activity.subject_id),
        "subject_name": _text(Activity.subject_name, defuse),
        # As it is stored, which is JSON on both databases.
        "changes": type_coerce(col(Activity.changes), Text),
    }
    query = _labelled(columns).select_from(Activity).outerjoin(actor, col(actor.id) == col(Activity.actor_id))
    return query, Activity


_QUERIES = {Kind.TASKS: _tasks, Kind.USERS: _users, Kind.ACTIVITIES: _activities}


def _labelled(columns: Mapping[str, SQLColumnExpression[Any]]) -> Select[Any]:
    return cast("Select[Any]", select(*(column.label(name) for name, column in columns.items())))


def _text(column: Any, defuse: bool) -> SQLColumnExpression[Any]:
    text = col(column)
    if not defuse:
        return text
    return case((func.substr(text, 1, 1).in_(FORMULA_STARTS), literal("'") + text), else_=text)
