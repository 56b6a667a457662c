"""Logs changes to users, tasks and invitations, each in the same transaction as the change itself."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import Field
from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Access, Actor
from employee_api.database import Repository
from employee_api.fields import Id, Month, ShortText, Timestamp, format_timestamp, in_month
from employee_api.http.operations import Call, operation
from employee_api.models import Activity
from employee_api.pagination import PageQuery, fetch_page
from employee_api.schemas import Output, Page


class ActivityQuery(PageQuery):
    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC, by creation")
    subject: Id | None = Field(default=None, description="The id of the user or task that was changed")
    actor: Id | None = Field(default=None, description="The id of the user who made the change")
    action: ShortText | None = Field(default=None, description="What was done, such as `created` or `updated`")


class ActivityOutput(Output):
    """A change to a user or task. `changes` maps each changed field to its values before and after."""

    id: uuid.UUID
    actor_id: uuid.UUID | None
    action: str = Field(examples=["updated"])
    subject_type: str = Field(examples=["task"])
    subject_id: uuid.UUID
    subject_name: str = Field(examples=["Water the plants"])
    changes: dict[str, Any] = Field(examples=[{"status": {"before": "todo", "after": "done"}}])
    created_at: Timestamp


class ActivityPage(Page[ActivityOutput]):
    """Activities, newest first."""


_FILTERS = {"subject": Activity.subject_id, "actor": Activity.actor_id, "action": Activity.action}


@dataclass(frozen=True)
class Subject:
    """The user, task or invitation that an action changed, with the values of the changed fields.

    `before` is empty if the action created the subject; `after` is empty if the action deleted the subject.
    """

    type: str
    id: uuid.UUID
    name: str
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Any]:
        return {
            name: {"before": _json_value(self.before.get(name)), "after": _json_value(self.after.get(name))}
            for name in self.after or self.before
        }


class ActivityHandlers(Repository):
    @operation("GET", "/api/activities", "List activities, newest first", Access.MANAGEMENT)
    async def list_activities(self, call: Call[ActivityQuery]) -> ActivityPage:
        query = call.input
        given = query.model_dump(include=set(_FILTERS), exclude_none=True)
        conditions = [col(_FILTERS[name]) == value for name, value in given.items()]
        matching = select(*ActivityOutput.columns(Activity)).where(*conditions)
        if query.month is not None:
            matching = matching.where(in_month(col(Activity.created_at), query.month))
        return await fetch_page(self, matching, Activity, query, ActivityPage)


async def record(
    connection: AsyncConnection, actor: Actor | None, action: str, at: datetime, *subjects: Subject
) -> None:
    rows = [
        {
            "id": uuid.uuid4(),
            "actor_id": actor and actor.id,
            "action": action,
            "subject_type": subject.type,
            "subject_id": subject.id,
            "subject_name": subject.name,
            "changes": subject.changes,
            "created_at": at,
        }
        for subject in subjects
    ]
    if rows:
        await connection.execute(insert(Activity), rows)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return value if value is None or isinstance(value, int) else str(value)
