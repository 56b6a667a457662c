"""Endpoints for tasks."""

import uuid
from http import HTTPStatus

from employee_api.access import Access
from employee_api.errors import PreconditionFailed
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput, QueryParameters
from employee_api.http.operations import Call, Endpoint, InputT, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Deleted
from employee_api.tasks.errors import SomeTasksNotFound, TaskNotFound, UnknownAssignee, UnknownReporter
from employee_api.tasks.repository import TaskRepository
from employee_api.tasks.schemas import (
    AssignmentOutput,
    TaskAssignment,
    TaskInput,
    TaskOutput,
    TaskPage,
    TaskPatch,
    TaskQuery,
)

_TASKS = "/api/tasks"
_TASK = "/api/tasks/{id}"


class TaskEndpoints:
    def __init__(self, tasks: TaskRepository) -> None:
        self._tasks = tasks

    def operations(self) -> list[Operation]:
        session, unknown_users = Access.SESSION, (UnknownAssignee(), UnknownReporter())
        return [
            Endpoint(
                "GET", _TASKS, "List tasks: search, filter, sort",
                QueryParameters(TaskQuery), JsonOutput(TaskPage), self.list_tasks, access=session,
            ),
            Endpoint(
                "POST", _TASKS, "Create a task",
                JsonBody(TaskInput), JsonOutput(TaskOutput, HTTPStatus.CREATED), self.add_task,
                access=session, repeatable=True, headers=("ETag",), failures=unknown_users,
            ),
            Endpoint(
                "POST", f"{_TASKS}/assign", "Assign several tasks: all of them or none",
                JsonBody(TaskAssignment), JsonOutput(AssignmentOutput), self.assign_tasks,
                access=session, repeatable=True, failures=(SomeTasksNotFound(), UnknownAssignee()),
            ),
            Endpoint(
                "GET", _TASK, "Get a task", NoInput(), JsonOutput(TaskOutput), self.get_task,
                access=session, headers=("ETag",), failures=(TaskNotFound(),),
            ),
            Endpoint(
                "PATCH", _TASK, "Change some fields of a task",
                JsonBody(TaskPatch), JsonOutput(TaskOutput), self.change_task,
                access=session, headers=("ETag",), failures=(TaskNotFound(), PreconditionFailed(), *unknown_users),
            ),
            Endpoint(
                "DELETE", _TASK, "Delete a task and its comments", NoInput(), JsonOutput(Deleted), self.delete_task,
                access=Access.MANAGEMENT, failures=(TaskNotFound(), PreconditionFailed()),
            ),
        ]  # fmt: skip

    async def list_tasks(self, call: Call[TaskQuery]) -> TaskPage:
        return await self._tasks.search(call.input)

    async def add_task(self, call: Call[TaskInput]) -> TaskOutput:
        task = await self._tasks.add(call.input, call.actor)
        call.location(f"{_TASKS}/{task.id}")
        call.tag(task)
        return task

    async def assign_tasks(self, call: Call[TaskAssignment]) -> AssignmentOutput:
        changed = await self._tasks.assign(call.input.task_ids, call.input.assignee_id, call.actor)
        return AssignmentOutput(changed=changed)

    async def get_task(self, call: Call[None]) -> TaskOutput:
        task = await self._tasks.get(parse_task_id(call))
        call.tag(task)
        return task

    async def change_task(self, call: Call[TaskPatch]) -> TaskOutput:
        task = await self._tasks.update(parse_task_id(call), call.input, call.actor, if_match=call.if_match)
        call.tag(task)
        return task

    async def delete_task(self, call: Call[None]) -> Deleted:
        task_id = parse_task_id(call)
        await self._tasks.delete(task_id, call.actor, if_match=call.if_match)
        return Deleted(id=task_id)


def parse_task_id(call: Call[InputT]) -> uuid.UUID:
    """Return the id of the task in the path. Raises TaskNotFound."""
    task_id = parse_id(call.request.path_params["id"])
    if task_id is None:
        raise TaskNotFound
    return task_id
