"""Endpoints for tasks and comments."""

import uuid
from http import HTTPStatus

from employee_api.access import Access
from employee_api.errors import TaskNotFound, UnknownAssignee, UnknownAuthor, UnknownReporter
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput, QueryParameters
from employee_api.http.operations import Call, Endpoint, InputT, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.pagination import PageQuery
from employee_api.schemas import Deleted
from employee_api.tasks.repository import TaskRepository
from employee_api.tasks.schemas import (
    CommentInput,
    CommentOutput,
    CommentPage,
    TaskInput,
    TaskOutput,
    TaskPage,
    TaskPatch,
    TaskQuery,
)

_TASKS = "/api/tasks"
_TASK = "/api/tasks/{id}"
_COMMENTS = "/api/tasks/{id}/comments"


class TaskEndpoints:
    def __init__(self, tasks: TaskRepository) -> None:
        self._tasks = tasks

    def operations(self) -> list[Operation]:
        session, unknown_users = Access.SESSION, (UnknownAssignee(), UnknownReporter())
        return [
            Endpoint(
                "GET", _TASKS, "List tasks, newest first",
                QueryParameters(TaskQuery), JsonOutput(TaskPage), self.list_tasks, access=session,
            ),
            Endpoint(
                "POST", _TASKS, "Create a task",
                JsonBody(TaskInput), JsonOutput(TaskOutput, HTTPStatus.CREATED), self.add_task,
                access=session, failures=unknown_users,
            ),
            Endpoint(
                "GET", _TASK, "Get a task", NoInput(), JsonOutput(TaskOutput), self.get_task,
                access=session, failures=(TaskNotFound(),),
            ),
            Endpoint(
                "PATCH", _TASK, "Change some fields of a task",
                JsonBody(TaskPatch), JsonOutput(TaskOutput), self.change_task,
                access=session, failures=(TaskNotFound(), *unknown_users),
            ),
            Endpoint(
                "DELETE", _TASK, "Delete a task and its comments", NoInput(), JsonOutput(Deleted), self.delete_task,
                access=Access.MANAGEMENT, failures=(TaskNotFound(),),
            ),
            Endpoint(
                "GET", _COMMENTS, "List the comments on a task, newest first",
                QueryParameters(PageQuery), JsonOutput(CommentPage), self.list_comments,
                access=session, failures=(TaskNotFound(),),
            ),
            Endpoint(
                "POST", _COMMENTS, "Comment on a task",
                JsonBody(CommentInput), JsonOutput(CommentOutput, HTTPStatus.CREATED), self.add_comment,
                access=session, failures=(TaskNotFound(), UnknownAuthor()),
            ),
        ]  # fmt: skip

    async def list_tasks(self, call: Call[TaskQuery]) -> TaskPage:
        return await self._tasks.search(call.input)

    async def add_task(self, call: Call[TaskInput]) -> TaskOutput:
        return await self._tasks.add(call.input, call.actor)

    async def get_task(self, call: Call[None]) -> TaskOutput:
        task = await self._tasks.get(_task_id(call))
        call.tag(task)
        return task

    async def change_task(self, call: Call[TaskPatch]) -> TaskOutput:
        return await self._tasks.update(_task_id(call), call.input, call.actor)

    async def delete_task(self, call: Call[None]) -> Deleted:
        task_id = _task_id(call)
        await self._tasks.delete(task_id, call.actor)
        return Deleted(id=task_id)

    async def list_comments(self, call: Call[PageQuery]) -> CommentPage:
        return await self._tasks.list_comments(_task_id(call), call.input)

    async def add_comment(self, call: Call[CommentInput]) -> CommentOutput:
        return await self._tasks.add_comment(_task_id(call), call.input, call.actor)


def _task_id(call: Call[InputT]) -> uuid.UUID:
    task_id = parse_id(call.request.path_params["id"])
    if task_id is None:
        raise TaskNotFound
    return task_id
