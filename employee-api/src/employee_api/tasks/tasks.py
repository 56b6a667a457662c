"""Handles tasks. To avoid deadlocks, transactions lock users before tasks, and lock both in the order of their ids."""

import uuid
from dataclasses import replace
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api import errors
from employee_api.access import Access, Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.http.etags import require_match
from employee_api.http.operations import Call, operation
from employee_api.models import Task, User
from employee_api.pagination import fetch_page
from employee_api.schemas import Deleted
from employee_api.tasks.schemas import (
    AssignmentOutput,
    Order,
    TaskAssignment,
    TaskInput,
    TaskOutput,
    TaskPage,
    TaskPatch,
    TaskQuery,
)
from employee_api.tasks.search import SORT_KEYS, matching_tasks

_UNKNOWN_USERS = (errors.UnknownAssignee(), errors.UnknownReporter())


async def get_task(connection: AsyncConnection, task_id: uuid.UUID, *, lock: bool = False) -> TaskOutput:
    """Return a task; with `lock`, lock it until the transaction ends. Raise TaskNotFound if no task has the id."""
    query = select(*TaskOutput.columns(Task)).where(col(Task.id) == task_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).mappings().first()
    if row is None:
        raise errors.TaskNotFound
    return TaskOutput.model_validate(row)


async def lock_users(connection: AsyncConnection, actor: Actor | None, *others: uuid.UUID | None) -> set[uuid.UUID]:
    """Lock the actor and other users against deletion until the transaction ends. Return the ids of existing users.

    Raise AuthenticationRequired if the actor has been deleted.
    """
    user_ids = {user_id for user_id in (actor and actor.id, *others) if user_id is not None}
    if not user_ids:
        return set()
    query = select(col(User.id)).where(col(User.id).in_(user_ids)).order_by(col(User.id))
    existing = set((await connection.execute(query.with_for_update(read=True, key_share=True))).scalars())
    if actor is not None and actor.id not in existing:
        raise errors.AuthenticationRequired
    return existing


class TaskHandlers(Repository):
    @operation("GET", "/api/tasks", "List tasks: search, filter, sort", Access.SESSION)
    async def list_tasks(self, call: Call[TaskQuery]) -> TaskPage:
        query = call.input
        key = replace(SORT_KEYS[query.sort], descending=query.order is Order.DESCENDING)
        return await fetch_page(self, matching_tasks(query), Task, query, TaskPage, key=key)

    @operation("GET", "/api/tasks/{id}", "Get a task", Access.SESSION, tagged=True)
    async def get_task(self, call: Call[None]) -> TaskOutput:
        async with self.reads.connect() as connection:
            return await get_task(connection, call.id)

    @operation(
        "POST", "/api/tasks", "Create a task", Access.SESSION, creates=True, tagged=True, repeatable=True,
        failures=_UNKNOWN_USERS,
    )  # fmt: skip
    async def add_task(self, call: Call[TaskInput]) -> TaskOutput:
        now, values = self.clock(), call.input.model_dump()
        if "reporter_id" not in call.input.model_fields_set and call.actor is not None:
            values["reporter_id"] = call.actor.id
        task = TaskOutput(id=uuid.uuid4(), created_at=now, updated_at=now, **values)
        async with transaction(self.engine) as connection:
            await _lock_assignee_and_reporter(connection, call.actor, values)
            await connection.execute(insert(Task).values(task.model_dump()))
            await record(connection, call.actor, "created", now, Subject("task", task.id, task.title, after=values))
        return task

    @operation(
        "PATCH", "/api/tasks/{id}", "Change some fields of a task", Access.SESSION, tagged=True,
        failures=(errors.PreconditionFailed(), *_UNKNOWN_USERS),
    )  # fmt: skip
    async def change_task(self, call: Call[TaskPatch]) -> TaskOutput:
        """Change the given fields. If nothing changes, record no activity."""
        task_id, now = call.id, self.clock()
        requested = call.input.model_dump(exclude_unset=True)
        async with transaction(self.engine) as connection:
            await _lock_assignee_and_reporter(connection, call.actor, requested)
            task = await get_task(connection, task_id, lock=True)
            require_match(call.if_match, task)
            before = task.model_dump()
            changed = {field: value for field, value in requested.items() if value != before[field]}
            if not changed:
                return task
            values = changed | {"updated_at": now}
            await connection.execute(update(Task).where(col(Task.id) == task_id).values(values))
            after = task.model_copy(update=values)
            await record(connection, call.actor, "updated", now, Subject("task", task_id, after.title, before, changed))
        return after

    @operation(
        "POST", "/api/tasks/assign", "Assign several tasks: all of them or none", Access.SESSION, repeatable=True,
        failures=(errors.SomeTasksNotFound(), errors.UnknownAssignee()),
    )  # fmt: skip
    async def assign_tasks(self, call: Call[TaskAssignment]) -> AssignmentOutput:
        now, assignment = self.clock(), call.input.model_dump(include={"assignee_id"})
        task_ids = set(call.input.task_ids)
        columns = (col(Task.id), col(Task.title), col(Task.assignee_id))
        query = select(*columns).where(col(Task.id).in_(task_ids)).order_by(col(Task.id)).with_for_update()
        async with transaction(self.engine) as connection:
            await _lock_assignee_and_reporter(connection, call.actor, assignment)
            tasks = (await connection.execute(query)).mappings().all()
            if len(tasks) < len(task_ids):
                raise errors.SomeTasksNotFound
            changed = [task for task in tasks if task["assignee_id"] != call.input.assignee_id]
            changed_ids = [task["id"] for task in changed]
            values = assignment | {"updated_at": now}
            await connection.execute(update(Task).where(col(Task.id).in_(changed_ids)).values(values))
            subjects = [Subject("task", task["id"], task["title"], dict(task), assignment) for task in changed]
            await record(connection, call.actor, "updated", now, *subjects)
        return AssignmentOutput(changed=changed_ids)

    @operation(
        "DELETE", "/api/tasks/{id}", "Delete a task and its comments", Access.MANAGEMENT,
        failures=(errors.PreconditionFailed(),),
    )  # fmt: skip
    async def delete_task(self, call: Call[None]) -> Deleted:
        task_id, now = call.id, self.clock()
        async with transaction(self.engine) as connection:
            await lock_users(connection, call.actor)
            task = await get_task(connection, task_id, lock=True)
            require_match(call.if_match, task)
            await connection.execute(delete(Task).where(col(Task.id) == task_id))
            values = task.model_dump(include=set(TaskInput.model_fields))
            await record(connection, call.actor, "deleted", now, Subject("task", task_id, task.title, before=values))
        return Deleted(id=task_id)


async def _lock_assignee_and_reporter(connection: AsyncConnection, actor: Actor | None, values: dict[str, Any]) -> None:
    assignee_id, reporter_id = values.get("assignee_id"), values.get("reporter_id")
    existing = await lock_users(connection, actor, assignee_id, reporter_id)
    if assignee_id is not None and assignee_id not in existing:
        raise errors.UnknownAssignee
    if reporter_id is not None and reporter_id not in existing:
        raise errors.UnknownReporter
