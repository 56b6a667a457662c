import uuid
from datetime import date
from enum import StrEnum

from pydantic import Field

from employee_api.fields import CalendarDate, CommentText, Id, LongText, Month, SearchText, Timestamp, Title
from employee_api.pagination import PageQuery
from employee_api.schemas import Output, Page, Patch, StrictInput, Success


class Status(StrEnum):
    """The progress of a task; it may change from any value to any other."""

    TODO = "todo"
    IN_PROGRESS = "in_progress"
    REVIEW = "review"
    DONE = "done"


class Priority(StrEnum):
    """The urgency of a task."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    URGENT = "urgent"


class TaskInput(StrictInput):
    """A new task."""

    title: Title
    description: LongText = ""
    status: Status = Status.TODO
    priority: Priority = Priority.MEDIUM
    assignee_id: Id | None = None
    reporter_id: Id | None = Field(default=None, description="The session's user when omitted")
    due_date: CalendarDate | None = None


class TaskPatch(TaskInput, Patch):
    """Changes to a task; omitted fields keep their values."""

    title: Title = ""
    reporter_id: Id | None = None


class TaskAssignment(StrictInput):
    """The new assignee of several tasks."""

    task_ids: list[Id] = Field(min_length=1, max_length=200)
    assignee_id: Id | None = Field(description="Null unassigns the tasks")


class AssignmentOutput(Success):
    """The result of assigning several tasks."""

    changed: list[uuid.UUID] = Field(description="The ids of the tasks that had another assignee before")


class TaskOutput(Output):
    """A task."""

    id: uuid.UUID
    title: str = Field(examples=["Water the plants"])
    description: str = Field(examples=["The ferns need most."])
    status: Status
    priority: Priority
    assignee_id: uuid.UUID | None
    reporter_id: uuid.UUID | None
    due_date: date | None
    created_at: Timestamp
    updated_at: Timestamp


class TaskSort(StrEnum):
    """The field to sort tasks by. In ascending order, `low` and `todo` come first. Sorting by title ignores case."""

    CREATED_AT = "created_at"
    UPDATED_AT = "updated_at"
    DUE_DATE = "due_date"
    PRIORITY = "priority"
    TITLE = "title"
    STATUS = "status"


class Order(StrEnum):
    """The sort direction."""

    ASCENDING = "asc"
    DESCENDING = "desc"


class TaskQuery(PageQuery):
    q: SearchText | None = Field(
        default=None, description="Words that the title or description must contain, in upper or lower case"
    )
    month: Month | None = Field(default=None, description="`YYYY-MM` in UTC, by creation")
    status: Status | None = None
    priority: Priority | None = None
    assignee: Id | None = Field(default=None, description="The id of the user it is assigned to")
    unassigned: bool | None = Field(default=None, description="`true`: without an assignee; `false`: with one")
    reporter: Id | None = Field(default=None, description="The id of the user who reported it")
    due_before: CalendarDate | None = Field(default=None, description="Due earlier than this `YYYY-MM-DD`")
    sort: TaskSort = Field(default=TaskSort.CREATED_AT, description="Tasks without a due date come last")
    order: Order = Order.DESCENDING


class TaskPage(Page[TaskOutput]):
    """Tasks in the requested order."""


class CommentPatch(StrictInput):
    """The new text of a comment."""

    body: CommentText


class CommentInput(CommentPatch):
    """A new comment."""

    author_id: Id | None = Field(default=None, description="Ignored when there is a session: its user is the author")


class CommentOutput(Output):
    """A comment."""

    id: uuid.UUID
    task_id: uuid.UUID
    author_id: uuid.UUID | None
    body: str = Field(examples=["Done, except for the cactus."])
    created_at: Timestamp
    edited_at: Timestamp | None = Field(description="When its author last changed the text; null if never")


class CommentPage(Page[CommentOutput]):
    """Comments, newest first."""
