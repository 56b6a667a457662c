"""What goes in and out over HTTP. The API's description is generated from these very classes."""

import uuid
from datetime import date
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from employee_api.rules import DEFAULT_ROLE
from employee_api.values import (
    CalendarDate,
    CommentText,
    Email,
    GivenText,
    Id,
    Limit,
    LongText,
    Moment,
    Month,
    Name,
    NewPassword,
    ShortText,
    Title,
)


def _without_defaults(schema: dict[str, Any]) -> None:
    """A field that is left out of a patch has no value at all, so its default is nothing to tell."""
    for field in schema["properties"].values():
        field.pop("default", None)


class Input(BaseModel):
    """What a request's body may hold; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Output(BaseModel):
    """What an answer holds, no field more."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="ignore")


class LoginInput(Input):
    """Credentials. Any length is taken: a password that is too long is a wrong one."""

    email: GivenText
    password: GivenText = Field(repr=False)


class UserInput(Input):
    """A new employee."""

    name: Name
    email: Email
    password: NewPassword = Field(repr=False)
    role: ShortText | None = Field(default=None, description=f"`{DEFAULT_ROLE}` when omitted or empty")
    dept: ShortText | None = Field(default=None, description="Empty when omitted")


class UserOutput(Output):
    """An employee as the API shows them: never with a password."""

    id: uuid.UUID
    name: str
    role: str
    email: str
    color: str
    avatar: str
    dept: str


class Status(StrEnum):
    """How far a task has come; any may follow any."""

    TODO = "todo"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    DONE = "done"


class Priority(StrEnum):
    """How urgent a task is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    URGENT = "urgent"


class StrictInput(Input):
    """A body in which an unknown field is a mistake, not something to ignore."""

    model_config = ConfigDict(extra="forbid")


class TaskInput(StrictInput):
    """A new task."""

    title: Title
    description: LongText = ""
    status: Status = Status.TODO
    priority: Priority = Priority.MEDIUM
    assignee_id: Id | None = None
    reporter_id: Id | None = Field(default=None, description="The session's user when omitted")
    due_date: CalendarDate | None = None


class TaskPatch(StrictInput):
    """What shall change of a task; fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    title: Title = ""
    description: LongText = ""
    status: Status = Status.TODO
    priority: Priority = Priority.MEDIUM
    assignee_id: Id | None = None
    reporter_id: Id | None = None
    due_date: CalendarDate | None = None


class TaskOutput(Output):
    """A task."""

    id: uuid.UUID
    title: str
    description: str
    status: Status
    priority: Priority
    assignee_id: uuid.UUID | None
    reporter_id: uuid.UUID | None
    due_date: date | None
    created_at: Moment
    updated_at: Moment


class CommentInput(StrictInput):
    """A new comment."""

    body: CommentText
    author_id: Id | None = Field(default=None, description="Ignored when there is a session: its user is the author")


class CommentOutput(Output):
    """A comment."""

    id: uuid.UUID
    task_id: uuid.UUID
    author_id: uuid.UUID | None
    body: str
    created_at: Moment


class ActivityOutput(Output):
    """Who did what when; `changes` tells the value before and after by field."""

    id: uuid.UUID
    actor_id: uuid.UUID | None
    action: str
    subject_type: str
    subject_id: uuid.UUID
    subject_name: str
    changes: dict[str, Any]
    created_at: Moment


class TaskPage(Output):
    """Tasks, newest first."""

    items: list[TaskOutput]
    next: str | None = Field(description="The `cursor` of the next page; null on the last one")


class CommentPage(Output):
    """Comments, newest first."""

    items: list[CommentOutput]
    next: str | None = Field(description="The `cursor` of the next page; null on the last one")


class ActivityPage(Output):
    """Activities, newest first."""

    items: list[ActivityOutput]
    next: str | None = Field(description="The `cursor` of the next page; null on the last one")


class Deleted(Output):
    """What was deleted."""

    success: Literal[True] = True
    id: uuid.UUID


class Success(Output):
    """It is done."""

    success: Literal[True] = True


class Health(Output):
    """How the process is."""

    status: Literal["ok"] = "ok"


class Error(Output):
    """What went wrong, in words."""

    error: str


class MonthQuery(Input):
    """The month of an export."""

    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC; everything when omitted")


class PageQuery(Input):
    """Which page of a list."""

    cursor: str | None = Field(default=None, description="`next` of the page before")
    limit: Limit = 50


class ActivityQuery(PageQuery):
    """Which activities."""

    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC, of the time it happened")


class TaskQuery(ActivityQuery):
    """Which tasks."""

    status: Status | None = None
    assignee: Id | None = Field(default=None, description="The id of the user it is assigned to")
