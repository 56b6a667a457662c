"""Tasks, comments on them, and what has happened."""

import uuid
from http import HTTPStatus

from employee_api.auth import Access
from employee_api.errors import TaskNotFound, UnknownAssignee, UnknownAuthor, UnknownReporter
from employee_api.operations import Call, Operation
from employee_api.rules import parse_id
from employee_api.schemas import (
    ActivityPage,
    ActivityQuery,
    CommentInput,
    CommentOutput,
    CommentPage,
    Deleted,
    PageQuery,
    TaskInput,
    TaskOutput,
    TaskPage,
    TaskPatch,
    TaskQuery,
)
from employee_api.task_repository import TaskRepository

_TASKS = "/api/tasks"
_TASK = "/api/tasks/{id}"
_COMMENTS = "/api/tasks/{id}/comments"


class TaskEndpoints:
    """Operations on tasks."""

    def __init__(self, tasks: TaskRepository) -> None:
        self._tasks = tasks

    def operations(self) -> list[Operation]:
        """What this group serves."""
        session, unknown_people = Access.SESSION, (UnknownAssignee(), UnknownReporter())
        return [
            Operation("GET", _TASKS, "Tasks, newest first", self.list_tasks, TaskPage, access=session, query=TaskQuery),
            Operation(
                "POST", _TASKS, "Create a task", self.add_task, TaskOutput, HTTPStatus.CREATED, session,
                body=TaskInput, failures=unknown_people,
            ),
            Operation("GET", _TASK, "A task", self.get_task, TaskOutput, access=session, failures=(TaskNotFound(),)),
            Operation(
                "PATCH", _TASK, "Change some fields of a task", self.change_task, TaskOutput,
                access=session, body=TaskPatch, failures=(TaskNotFound(), *unknown_people),
            ),
            Operation(
                "DELETE", _TASK, "Delete a task and its comments", self.delete_task, Deleted,
                access=Access.LEADER, failures=(TaskNotFound(),),
            ),
            *self._records(),
        ]  # fmt: skip

    def _records(self) -> list[Operation]:
        session = Access.SESSION
        return [
            Operation(
                "GET", _COMMENTS, "Comments on a task, newest first", self.list_comments, CommentPage,
                access=session, query=PageQuery, failures=(TaskNotFound(),),
            ),
            Operation(
                "POST", _COMMENTS, "Comment on a task", self.add_comment, CommentOutput, HTTPStatus.CREATED, session,
                body=CommentInput, failures=(TaskNotFound(), UnknownAuthor()),
            ),
            Operation(
                "GET", "/api/activities", "What has happened, newest first", self.list_activities, ActivityPage,
                access=session, query=ActivityQuery,
            ),
        ]  # fmt: skip

    async def list_tasks(self, _call: Call, asked: TaskQuery) -> TaskPage:
        """Tasks that fit."""
        page = await self._tasks.page(asked)
        return TaskPage(items=[TaskOutput.model_validate(row) for row in page.rows], next=page.next)

    async def add_task(self, call: Call, new: TaskInput) -> TaskOutput:
        """Create a task."""
        return await self._tasks.add(new, call.actor)

    async def get_task(self, call: Call) -> TaskOutput:
        """One task."""
        return await self._tasks.one(_task_id(call))

    async def change_task(self, call: Call, patch: TaskPatch) -> TaskOutput:
        """Change a task."""
        return await self._tasks.change(_task_id(call), patch, call.actor)

    async def delete_task(self, call: Call) -> Deleted:
        """Delete a task."""
        task_id = _task_id(call)
        await self._tasks.remove(task_id, call.actor)
        return Deleted(id=task_id)

    async def list_comments(self, call: Call, asked: PageQuery) -> CommentPage:
        """Comments on a task."""
        page = await self._tasks.comments(_task_id(call), asked)
        return CommentPage(items=[CommentOutput.model_validate(row) for row in page.rows], next=page.next)

    async def add_comment(self, call: Call, new: CommentInput) -> CommentOutput:
        """Comment on a task."""
        return await self._tasks.comment(_task_id(call), new, call.actor)

    async def list_activities(self, _call: Call, asked: ActivityQuery) -> ActivityPage:
        """Activities that fit."""
        page = await self._tasks.activities(asked)
        items = page.rows
        return ActivityPage.model_validate({"items": items, "next": page.next})


def _task_id(call: Call) -> uuid.UUID:
    task_id = parse_id(call.request.path_params["id"])
    if task_id is None:
        raise TaskNotFound
    return task_id
