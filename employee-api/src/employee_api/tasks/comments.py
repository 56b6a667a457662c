"""Comments in the database. Every change records an activity of the task, with the comment's id but not its text."""

import uuid

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities import Subject, change, record
from employee_api.database import Repository, transaction
from employee_api.errors import CommentNotFound, UnknownAuthor
from employee_api.models import Comment
from employee_api.pagination import PageQuery, fetch_page
from employee_api.tasks.repository import get_task, lock_users
from employee_api.tasks.schemas import CommentInput, CommentOutput, CommentPage, CommentPatch

_COLUMNS = [getattr(Comment, name) for name in CommentOutput.model_fields]


class CommentRepository(Repository):
    async def list_all(self, task_id: uuid.UUID, query: PageQuery) -> CommentPage:
        """Return a page of the comments on a task. Raises TaskNotFound."""
        async with self._reads.connect() as connection:
            await get_task(connection, task_id)
        matching = select(*_COLUMNS).where(col(Comment.task_id) == task_id)
        return await fetch_page(self._reads, matching, Comment, query, CommentPage)

    async def get(self, task_id: uuid.UUID, comment_id: uuid.UUID) -> CommentOutput:
        """Return a comment. Raises TaskNotFound, CommentNotFound."""
        async with self._reads.connect() as connection:
            await get_task(connection, task_id)
            return await _get_comment(connection, task_id, comment_id)

    async def add(self, task_id: uuid.UUID, new: CommentInput, actor: Actor | None) -> CommentOutput:
        """Add a comment, by the actor if there is one, and return it. Raises TaskNotFound, UnknownAuthor."""
        now = self.clock()
        author_id = actor.id if actor else new.author_id
        comment = CommentOutput(
            id=uuid.uuid4(), task_id=task_id, author_id=author_id, body=new.body, created_at=now, edited_at=None
        )
        async with transaction(self.engine) as connection:
            existing = await lock_users(connection, actor, author_id)
            task = await get_task(connection, task_id, lock=True)
            if author_id is not None and author_id not in existing:
                raise UnknownAuthor
            await connection.execute(insert(Comment).values(comment.model_dump()))
            added = {"comment_id": change(None, comment.id)}
            await record(connection, actor, "commented", [Subject("task", task_id, task.title, added)], now)
        return comment

    async def update(
        self, task_id: uuid.UUID, comment_id: uuid.UUID, patch: CommentPatch, actor: Actor | None
    ) -> CommentOutput:
        """Replace the text and return the comment; the same text is no edit. Raises TaskNotFound, CommentNotFound."""
        now = self.clock()
        async with transaction(self.engine) as connection:
            await lock_users(connection, actor)
            task = await get_task(connection, task_id, lock=True)
            comment = await _get_comment(connection, task_id, comment_id)
            if patch.body == comment.body:
                return comment
            values = {"body": patch.body, "edited_at": now}
            await connection.execute(update(Comment).where(col(Comment.id) == comment_id).values(values))
            edited = {"comment_id": change(comment_id, comment_id)}
            await record(connection, actor, "comment_edited", [Subject("task", task_id, task.title, edited)], now)
        return comment.model_copy(update=values)

    async def delete(self, task_id: uuid.UUID, comment_id: uuid.UUID, actor: Actor | None) -> None:
        """Delete a comment. Raises TaskNotFound, CommentNotFound."""
        now = self.clock()
        async with transaction(self.engine) as connection:
            await lock_users(connection, actor)
            task = await get_task(connection, task_id, lock=True)
            await _get_comment(connection, task_id, comment_id)
            await connection.execute(delete(Comment).where(col(Comment.id) == comment_id))
            deleted = {"comment_id": change(comment_id, None)}
            await record(connection, actor, "comment_deleted", [Subject("task", task_id, task.title, deleted)], now)


async def _get_comment(connection: AsyncConnection, task_id: uuid.UUID, comment_id: uuid.UUID) -> CommentOutput:
    # No lock of its own: comments change only while their task is locked.
    query = select(*_COLUMNS).where(col(Comment.id) == comment_id, col(Comment.task_id) == task_id)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise CommentNotFound
    return CommentOutput.model_validate(row)
