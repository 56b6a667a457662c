"""Requests and responses about activities."""

import uuid
from typing import Any

from pydantic import Field

from employee_api.fields import Id, Month, ShortText, Timestamp
from employee_api.pagination import PageQuery
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
