"""Rows that a change to a task depends on.

Every transaction locks users before tasks, each in the order of their ids, so that no two can deadlock.
"""

import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.errors import AuthenticationRequired, SomeTasksNotFound, TaskNotFound
from employee_api.models import Task, User
from employee_api.tasks.schemas import TaskOutput

TASK_COLUMNS = [getattr(Task, name) for name in TaskOutput.model_fields]


async def get_task(connection: AsyncConnection, task_id: uuid.UUID, *, lock: bool = False) -> TaskOutput:
    """Return a task, locked until the transaction ends if `lock` is set. Raises TaskNotFound."""
    query = select(*TASK_COLUMNS).where(col(Task.id) == task_id)
    row = (await connection.execute(query.with_for_update() if lock else query)).mappings().first()
    if row is None:
        raise TaskNotFound
    return TaskOutput.model_validate(row)


async def lock_tasks(connection: AsyncConnection, task_ids: Collection[uuid.UUID]) -> Sequence[RowMapping]:
    """Return id, title and assignee of distinct tasks, locked until the transaction ends. Raises SomeTasksNotFound."""
    columns = (col(Task.id), col(Task.title), col(Task.assignee_id))
    query = select(*columns).where(col(Task.id).in_(task_ids)).order_by(col(Task.id)).with_for_update()
    tasks = (await connection.execute(query)).mappings().all()
    if len(tasks) < len(task_ids):
        raise SomeTasksNotFound
    return tasks


async def lock_users(connection: AsyncConnection, actor: Actor | None, *others: uuid.UUID | None) -> set[uuid.UUID]:
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
