"""Tasks and comments in the database. Every change records an activity in the same transaction.

Every transaction locks users before tasks, each in the order of their ids, so that no two can deadlock.
"""

import uuid
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities.repository import Subject, change, record
from employee_api.clock import Clock
from employee_api.database import transaction
from employee_api.errors import AuthenticationRequired, TaskNotFound, UnknownAssignee, UnknownAuthor, UnknownReporter
from employee_api.models import Comment, Task, User
from employee_api.months import in_month
from employee_api.pagination import PageQuery, fetch_page
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

_TASK_COLUMNS = [getattr(Task, name) for name in TaskOutput.model_fields]
_COMMENT_COLUMNS = [getattr(Comment, name) for name in CommentOutput.model_fields]


class TaskRepository:
    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._reads = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._clock = clock

    async def search(self, query: TaskQuery) -> TaskPage:
        """Return a page of the tasks that match every given filter."""
        matching = select(*_TASK_COLUMNS)
        if query.status is not None:
            matching = matching.where(col(Task.status) == query.status)
        if query.assignee is not None:
            matching = matching.where(col(Task.assignee_id) == query.assignee)
        if query.month is not None:
            matching = matching.where(in_month(col(Task.created_at), query.month))
        page = await fetch_page(self._reads, matching, Task, query)
        return TaskPage(items=[TaskOutput.model_validate(row) for row in page.rows], next=page.next)

    async def get(self, task_id: uuid.UUID) -> TaskOutput:
        """Return a task. Raises TaskNotFound."""
        async with self._reads.connect() as connection:
            return await _get_task(connection, task_id)

    async def add(self, new: TaskInput, actor: Actor | None) -> TaskOutput:
        """Create a task and return it. Raises UnknownAssignee, UnknownReporter."""
        now = self._clock()
        values = new.model_dump()
        if "reporter_id" not in new.model_fields_set and actor is not None:
            values["reporter_id"] = actor.id
        task = TaskOutput(id=uuid.uuid4(), created_at=now, updated_at=now, **values)
        async with transaction(self._engine) as connection:
            await _lock_assignee_and_reporter(connection, actor, values)
            await connection.execute(insert(Task).values(task.model_dump()))
            created = {field: change(None, value) for field, value in values.items()}
            await record(connection, actor, "created", [Subject("task", task.id, task.title, created)], now)
        return task

    async def update(self, task_id: uuid.UUID, patch: TaskPatch, actor: Actor | None) -> TaskOutput:
        """Apply a patch and return the task; a patch without effect records no activity.

        Raises TaskNotFound, UnknownAssignee, UnknownReporter.
        """
        now = self._clock()
        requested = patch.model_dump(exclude_unset=True)
        async with transaction(self._engine) as connection:
            await _lock_assignee_and_reporter(connection, actor, requested)
            task = await _get_task(connection, task_id, lock=True)
            before = task.model_dump()
            changed = {field: value for field, value in requested.items() if value != before[field]}
            if not changed:
                return task
            values = changed | {"updated_at": now}
            await connection.execute(update(Task).where(col(Task.id) == task_id).values(values))
            changes = {field: change(before[field], value) for field, value in changed.items()}
            after = task.model_copy(update=values)
            await record(connection, actor, "updated", [Subject("task", task_id, after.title, changes)], now)
        return after

    async def delete(self, task_id: uuid.UUID, actor: Actor | None) -> None:
        """Delete a task and its comments. Raises TaskNotFound."""
        now = self._clock()
        async with transaction(self._engine) as connection:
            await _lock_users(connection, actor)
            task = await _get_task(connection, task_id, lock=True)
            await connection.execute(delete(Task).where(col(Task.id) == task_id))
            values = task.model_dump(include=set(TaskInput.model_fields))
            deleted = {field: change(value, None) for field, value in values.items()}
            await record(connection, actor, "deleted", [Subject("task", task_id, task.title, deleted)], now)

    async def list_comments(self, task_id: uuid.UUID, query: PageQuery) -> CommentPage:
        """Return a page of the comments on a task. Raises TaskNotFound."""
        await self.get(task_id)
        matching = select(*_COMMENT_COLUMNS).where(col(Comment.task_id) == task_id)
        page = await fetch_page(self._reads, matching, Comment, query)
        return CommentPage(items=[CommentOutput.model_validate(row) for row in page.rows], next=page.next)

    async def add_comment(self, task_id: uuid.UUID, new: CommentInput, actor: Actor | None) -> CommentOutput:
        """Add a comment, by the actor if there is one, and return it. Raises TaskNotFound, UnknownAuthor."""
        now = self._clock()
        author_id = actor.id if actor else new.author_id
        comment = CommentOutput(id=uuid.uuid4(), task_id=task_id, author_id=author_id, body=new.body, created_at=now)
        async with transaction(self._engine) as connection:
            existing = await _lock_users(connection, actor, author_id)
            task = await _get_task(connection, task_id, lock=True)
            if author_id is not None and author_id not in existing:
                raise UnknownAuthor
            await connection.execute(insert(Comment).values(comment.model_dump()))
            added = {"comment_id": change(None, comment.id)}
            await record(connection, actor, "commented", [Subject("task", task_id, task.title, added)], now)
        return comment


async def _get_task(connection: AsyncConnection, task_id: uuid.UUID, *, lock: bool = False) -> TaskOutput:
    query = select(*_TASK_COLUMNS).where(col(Task.id) == task_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).mappings().first()
    if row is None:
        raise TaskNotFound
    return TaskOutput.model_validate(row)


async def _lock_assignee_and_reporter(connection: AsyncConnection, actor: Actor | None, values: dict[str, Any]) -> None:
    assignee_id, reporter_id = values.get("assignee_id"), values.get("reporter_id")
    existing = await _lock_users(connection, actor, assignee_id, reporter_id)
    if assignee_id is not None and assignee_id not in existing:
        raise UnknownAssignee
    if reporter_id is not None and reporter_id not in existing:
        raise UnknownReporter


async def _lock_users(connection: AsyncConnection, actor: Actor | None, *others: uuid.UUID | None) -> set[uuid.UUID]:
    """Prevent the deletion of users until the transaction ends, and return the ids of those who exist.

    Raises AuthenticationRequired if the actor was deleted, which ended the session.
    """
    user_ids = {user_id for user_id in (actor and actor.id, *others) if user_id is not None}
    if not user_ids:
        return set()
    query = select(col(User.id)).where(col(User.id).in_(user_ids)).order_by(col(User.id))
    existing = set((await connection.execute(query.with_for_update(read=True, key_share=True))).scalars())
    if actor is not None and actor.id not in existing:
        raise AuthenticationRequired
    return existing
