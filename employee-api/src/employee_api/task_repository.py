"""Tasks, their comments, and the activities that all changes leave behind."""

import uuid
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel import col

from employee_api.activities import Actor, Subject, change, hold_users, record
from employee_api.errors import TaskNotFound, UnknownAssignee, UnknownAuthor, UnknownReporter
from employee_api.models import Activity, Comment, Task
from employee_api.pages import Page, fetch_page, in_month
from employee_api.repository import Clock
from employee_api.schemas import (
    ActivityOutput,
    ActivityQuery,
    CommentInput,
    CommentOutput,
    PageQuery,
    TaskInput,
    TaskOutput,
    TaskPatch,
    TaskQuery,
)

_TASK = [getattr(Task, name) for name in TaskOutput.model_fields]
_COMMENT = [getattr(Comment, name) for name in CommentOutput.model_fields]
_ACTIVITY = [getattr(Activity, name) for name in ActivityOutput.model_fields]


class TaskRepository:
    """Tasks and what belongs to them."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock

    async def page(self, asked: TaskQuery) -> Page:
        """Tasks that fit every filter given."""
        query = select(*_TASK)
        if asked.status is not None:
            query = query.where(col(Task.status) == asked.status)
        if asked.assignee is not None:
            query = query.where(col(Task.assignee_id) == asked.assignee)
        if asked.month is not None:
            query = query.where(in_month(col(Task.created_at), asked.month))
        return await fetch_page(self._reads, query, Task, asked.cursor, asked.limit)

    async def one(self, task_id: uuid.UUID) -> TaskOutput:
        """A task by its id. Raises TaskNotFound."""
        async with self._reads.connect() as connection:
            return await _find(connection, task_id)

    async def add(self, new: TaskInput, actor: Actor | None) -> TaskOutput:
        """Create a task. Raises UnknownAssignee, UnknownReporter."""
        now = self._clock()
        values = new.model_dump()
        if "reporter_id" not in new.model_fields_set and actor is not None:
            values["reporter_id"] = actor.id
        task = TaskOutput(id=uuid.uuid4(), created_at=now, updated_at=now, **values)
        async with self._engine.begin() as connection:
            await _hold_people(connection, actor, values)
            await connection.execute(insert(Task).values(task.model_dump()))
            created = {field: change(None, value) for field, value in values.items()}
            await record(connection, actor, "created", [Subject("task", task.id, task.title, created)], now)
        return task

    async def change(self, task_id: uuid.UUID, patch: TaskPatch, actor: Actor | None) -> TaskOutput:
        """Change what the patch sets; a patch that changes nothing leaves no trace.

        Raises TaskNotFound, UnknownAssignee, UnknownReporter.
        """
        now = self._clock()
        wanted = patch.model_dump(exclude_unset=True)
        async with self._engine.begin() as connection:
            await _hold_people(connection, actor, wanted)
            task = await _find(connection, task_id, lock=True)
            before = task.model_dump()
            changed = {field: value for field, value in wanted.items() if value != before[field]}
            if not changed:
                return task
            values = changed | {"updated_at": now}
            await connection.execute(update(Task).where(col(Task.id) == task_id).values(values))
            changes = {field: change(before[field], value) for field, value in changed.items()}
            after = task.model_copy(update=values)
            await record(connection, actor, "updated", [Subject("task", task_id, after.title, changes)], now)
        return after

    async def remove(self, task_id: uuid.UUID, actor: Actor | None) -> None:
        """Delete a task with its comments. Raises TaskNotFound."""
        now = self._clock()
        async with self._engine.begin() as connection:
            await hold_users(connection, actor)
            task = await _find(connection, task_id, lock=True)
            await connection.execute(delete(Task).where(col(Task.id) == task_id))
            values = task.model_dump(include=set(TaskInput.model_fields))
            deleted = {field: change(value, None) for field, value in values.items()}
            await record(connection, actor, "deleted", [Subject("task", task_id, task.title, deleted)], now)

    async def comments(self, task_id: uuid.UUID, asked: PageQuery) -> Page:
        """Comments on a task. Raises TaskNotFound."""
        await self.one(task_id)
        query = select(*_COMMENT).where(col(Comment.task_id) == task_id)
        return await fetch_page(self._reads, query, Comment, asked.cursor, asked.limit)

    async def comment(self, task_id: uuid.UUID, new: CommentInput, actor: Actor | None) -> CommentOutput:
        """Comment on a task: as the actor if there is one. Raises TaskNotFound, UnknownAuthor."""
        now = self._clock()
        author_id = actor.id if actor else new.author_id
        comment = CommentOutput(id=uuid.uuid4(), task_id=task_id, author_id=author_id, body=new.body, created_at=now)
        async with self._engine.begin() as connection:
            held = await hold_users(connection, actor, author_id)
            task = await _find(connection, task_id, lock=True)
            if author_id is not None and author_id not in held:
                raise UnknownAuthor
            await connection.execute(insert(Comment).values(comment.model_dump()))
            written = {"comment_id": change(None, comment.id)}
            await record(connection, actor, "commented", [Subject("task", task_id, task.title, written)], now)
        return comment

    async def activities(self, asked: ActivityQuery) -> Page:
        """Activities of a month, or all."""
        query = select(*_ACTIVITY)
        if asked.month is not None:
            query = query.where(in_month(col(Activity.created_at), asked.month))
        return await fetch_page(self._reads, query, Activity, asked.cursor, asked.limit)


async def _find(connection: AsyncConnection, task_id: uuid.UUID, *, lock: bool = False) -> TaskOutput:
    query = select(*_TASK).where(col(Task.id) == task_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).mappings().first()
    if row is None:
        raise TaskNotFound
    return TaskOutput.model_validate(row)


async def _hold_people(connection: AsyncConnection, actor: Actor | None, values: dict[str, Any]) -> None:
    assignee_id, reporter_id = values.get("assignee_id"), values.get("reporter_id")
    held = await hold_users(connection, actor, assignee_id, reporter_id)
    if assignee_id is not None and assignee_id not in held:
        raise UnknownAssignee
    if reporter_id is not None and reporter_id not in held:
        raise UnknownReporter
