"""The log of changes to users and tasks. They are recorded in the transaction of the change: both commit or neither."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import Field
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel import col

from employee_api.access import Actor
from employee_api.fields import Id, Month, ShortText, Timestamp, format_timestamp
from employee_api.http.operations import Call
from employee_api.models import Activity
from employee_api.months import in_month
from employee_api.pagination import PageQuery, fetch_page
from employee_api.schemas import Output


class ActivityQuery(PageQuery):
    """Which activities to list."""

    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC, by creation")
    subject: Id | None = Field(default=None, description="The id of the user or task that was changed")
    actor: Id | None = Field(default=None, description="The id of the user who made the change")
    action: ShortText | None = Field(default=None, description="What was done, such as `created` or `updated`")


class ActivityOutput(Output):
    """A change to a user or task: `changes` has the values before and after for each field."""

    id: uuid.UUID
    actor_id: uuid.UUID | None
    action: str = Field(examples=["updated"])
    subject_type: str = Field(examples=["task"])
    subject_id: uuid.UUID
    subject_name: str = Field(examples=["Water the plants"])
    changes: dict[str, Any] = Field(examples=[{"status": {"before": "todo", "after": "done"}}])
    created_at: Timestamp


class ActivityPage(Output):
    """Activities, newest first."""

    items: list[ActivityOutput]
    next: str | None = Field(description="The `cursor` of the next page; null on the last page")


_COLUMNS = [getattr(Activity, name) for name in ActivityOutput.model_fields]
_FILTERS = {"subject": Activity.subject_id, "actor": Activity.actor_id, "action": Activity.action}


@dataclass(frozen=True)
class Subject:
    """The user or task that an action changed; `changes` maps each field to its value before and after."""

    type: str
    id: uuid.UUID
    name: str
    changes: Mapping[str, Any]


class ActivityRepository:
    def __init__(self, engine: AsyncEngine) -> None:
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")

    async def search(self, query: ActivityQuery) -> ActivityPage:
        """Return a page of the activities that match every given filter."""
        given = query.model_dump(include=set(_FILTERS), exclude_none=True)
        matching = select(*_COLUMNS).where(*(col(_FILTERS[name]) == value for name, value in given.items()))
        if query.month is not None:
            matching = matching.where(in_month(col(Activity.created_at), query.month))
        return await fetch_page(self._reads, matching, Activity, query, ActivityPage)


async def record(
    connection: AsyncConnection, actor: Actor | None, action: str, subjects: Sequence[Subject], at: datetime
) -> None:
    """Insert one activity for each subject."""
    rows = [
        {
            "id": uuid.uuid4(),
            "actor_id": actor and actor.id,
            "action": action,
            "subject_type": subject.type,
            "subject_id": subject.id,
            "subject_name": subject.name,
            "changes": dict(subject.changes),
            "created_at": at,
        }
        for subject in subjects
    ]
    if rows:
        await connection.execute(insert(Activity), rows)


def change(before: Any, after: Any) -> dict[str, Any]:
    """Return a field's values before and after as JSON values."""
    return {"before": _json_value(before), "after": _json_value(after)}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return value if value is None or isinstance(value, int) else str(value)


@dataclass(frozen=True)
class ActivityHandlers:
    activities: ActivityRepository

    async def list_activities(self, call: Call[ActivityQuery]) -> ActivityPage:
        return await self.activities.search(call.input)
