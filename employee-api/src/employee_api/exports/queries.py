from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Any, cast
from zoneinfo import ZoneInfo

from sqlalchemy import Label, Select, Text, case, func, literal, select, type_coerce
from sqlalchemy.orm import aliased
from sqlmodel import col

from employee_api.fields import in_month
from employee_api.models import Activity, Entity, Task, User

# Spreadsheets run text that begins with these characters as a formula. The last four are the full-width =, +, - and @.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Some spreadsheets ignore these leading spaces: plain, no-break and ideographic.
_SPACES = " \u00a0\u3000"
# Matches text within a cell that spreadsheets run as a formula if they expect a different separator or ignore quotes.
_INNER_FORMULA = f"([;,\t\r\n])([{_SPACES}]*[-=+@\uff1d\uff0b\uff0d\uff20])"
_ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US'


class Table(StrEnum):
    TASKS = "tasks"
    USERS = "users"
    ACTIVITIES = "activities"


def zoned_timestamp(stored: str, zone: tzinfo) -> str:
    """Convert a UTC timestamp from SQLite to a time zone, and format it."""
    moment = datetime.fromisoformat(stored).replace(tzinfo=UTC).astimezone(zone)
    return moment.isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Format:
    """How an export query formats cells.

    Attributes:
        dialect: the SQL dialect. With SQLite, `zone` requires the SQL function `zoned_timestamp` on the connection.
        defuse_formulas: whether to put an apostrophe before free text that a spreadsheet would run as a formula. With
            SQLite, this requires the SQL function `regexp_replace` on the connection.
        zone: the time zone of the timestamps in the file; None means UTC.
    """

    dialect: str = "sqlite"
    defuse_formulas: bool = False
    zone: ZoneInfo | None = None

    def text(self, column: Any, name: str | None = None) -> Label[Any]:
        text: Any = col(column)
        if self.defuse_formulas:
            first = func.substr(func.ltrim(text, _SPACES), 1, 1)
            text = case((first.in_(_FORMULA_STARTS), literal("'") + text), else_=text)
            text = func.regexp_replace(text, _INNER_FORMULA, r"\1'\2", "g")
        return cast("Label[Any]", text.label(name or column.key))

    def timestamp(self, column: Any) -> Label[Any]:
        """Format a timestamp as 2026-01-31T23:59:59.000000Z, or, in a zone, as 2026-02-01T00:59:59.000000+01:00."""
        moment: Any = col(column)
        if self.dialect == "sqlite":
            text = func.zoned_timestamp(moment) if self.zone else func.replace(moment, " ", "T", type_=Text) + "Z"
        elif self.zone is None:
            text = func.to_char(func.timezone("UTC", moment), _ISO + '"Z"')
        else:
            text = func.to_char(moment, _ISO + "TZH:TZM")
        return text.label(column.key)


def export_query(table: Table, month: str | None, form: Format) -> Select[Any]:
    """Select the rows created in `month` (in the format's time zone), or all rows if `month` is None; oldest first."""
    query, model = _QUERIES[table](form)
    if month is not None:
        query = query.where(in_month(col(model.created_at), month, form.zone or UTC))
    return query.order_by(col(model.created_at), col(model.id))


def csv_example(table: Table) -> str:
    """Return the header line of an export, which the API description shows as an example."""
    query, _model = _QUERIES[table](Format())
    return ",".join(query.selected_columns.keys()) + "\r\n"


def _tasks(form: Format) -> tuple[Select[Any], type[Task]]:
    assignee, reporter = aliased(User), aliased(User)
    columns: list[Any] = [
        Task.id,
        form.text(Task.title),
        form.text(Task.description),
        Task.status,
        Task.priority,
        Task.assignee_id,
        form.text(assignee.name, "assignee_name"),
        Task.reporter_id,
        form.text(reporter.name, "reporter_name"),
        Task.due_date,
        form.timestamp(Task.created_at),
        form.timestamp(Task.updated_at),
    ]
    query = (
        select(*columns)
        .select_from(Task)
        .outerjoin(assignee, col(assignee.id) == col(Task.assignee_id))
        .outerjoin(reporter, col(reporter.id) == col(Task.reporter_id))
    )
    return query, Task


def _users(form: Format) -> tuple[Select[Any], type[User]]:
    texts = [form.text(column) for column in (User.name, User.email, User.role, User.dept)]
    return select(col(User.id), *texts, form.timestamp(User.created_at)), User


def _activities(form: Format) -> tuple[Select[Any], type[Activity]]:
    actor = aliased(User)
    columns: list[Any] = [
        Activity.id,
        form.timestamp(Activity.created_at),
        Activity.actor_id,
        form.text(actor.name, "actor_name"),
        Activity.action,
        Activity.subject_type,
        Activity.subject_id,
        form.text(Activity.subject_name),
        # Both databases store `changes` as JSON text, so export the text unchanged.
        type_coerce(col(Activity.changes), Text).label("changes"),
    ]
    query = select(*columns).select_from(Activity)
    return query.outerjoin(actor, col(actor.id) == col(Activity.actor_id)), Activity


_Query = Callable[[Format], tuple[Select[Any], type[Entity]]]
_QUERIES: dict[Table, _Query] = {Table.TASKS: _tasks, Table.USERS: _users, Table.ACTIVITIES: _activities}
