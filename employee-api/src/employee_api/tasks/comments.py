"""Comments. Every change records an activity of the task, with the comment's id but not its text."""

import uuid
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Actor
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.errors import CommentNotFound, NotTheAuthor, TaskNotFound, UnknownAuthor
from employee_api.http.authorization import Authorizer
from employee_api.http.operations import Call, InputT
from employee_api.models import Comment
from employee_api.pagination import PageQuery, fetch_page
from employee_api.schemas import Deleted
from employee_api.tasks.schemas import CommentInput, CommentOutput, CommentPage, CommentPatch, TaskOutput
from employee_api.tasks.tasks import get_task, lock_users


@dataclass
class CommentHandlers(Repository):
    """Only the author may edit a comment, and only they and management roles may delete it."""

    authorizer: Authorizer

    async def list_comments(self, call: Call[PageQuery]) -> CommentPage:
        task_id = call.path_id(TaskNotFound())
        async with self.reads.connect() as connection:
            await get_task(connection, task_id)
        matching = select(*CommentOutput.columns(Comment)).where(col(Comment.task_id) == task_id)
        return await fetch_page(self.reads, matching, Comment, call.input, CommentPage)

    async def get_comment(self, call: Call[None]) -> CommentOutput:
        return await self._get(*_ids(call))

    async def add_comment(self, call: Call[CommentInput]) -> CommentOutput:
        """Add a comment, by the user of the session if there is one."""
        task_id, now, body = call.path_id(TaskNotFound()), self.clock(), call.input.body
        author_id = call.actor.id if call.actor else call.input.author_id
        comment = CommentOutput(
            id=uuid.uuid4(), task_id=task_id, author_id=author_id, body=body, created_at=now, edited_at=None
        )
        async with transaction(self.engine) as connection:
            existing = await lock_users(connection, call.actor, author_id)
            task = await get_task(connection, task_id, lock=True)
            if author_id is not None and author_id not in existing:
                raise UnknownAuthor
            await connection.execute(insert(Comment).values(comment.model_dump()))
            commented = Subject("task", task_id, task.title, after={"comment_id": comment.id})
            await record(connection, call.actor, "commented", now, commented)
        call.response_headers["location"] = f"/api/tasks/{task_id}/comments/{comment.id}"
        return comment

    async def edit_comment(self, call: Call[CommentPatch]) -> CommentOutput:
        """Replace the text and return the comment; the same text is no edit."""
        task_id, comment_id = _ids(call)
        await self._require_author(call, task_id, comment_id, "edit_comment")
        now, body = self.clock(), call.input.body
        async with transaction(self.engine) as connection:
            task, comment = await _lock_comment(connection, call.actor, task_id, comment_id)
            if body == comment.body:
                return comment
            values = {"body": body, "edited_at": now}
            await connection.execute(update(Comment).where(col(Comment.id) == comment_id).values(values))
            named = {"comment_id": comment_id}
            edited = Subject("task", task_id, task.title, named, named)
            await record(connection, call.actor, "comment_edited", now, edited)
        return comment.model_copy(update=values)

    async def delete_comment(self, call: Call[None]) -> Deleted:
        task_id, comment_id = _ids(call)
        if call.actor is not None and not call.actor.manages:
            await self._require_author(call, task_id, comment_id, "delete_comment")
        now = self.clock()
        async with transaction(self.engine) as connection:
            task, _ = await _lock_comment(connection, call.actor, task_id, comment_id)
            await connection.execute(delete(Comment).where(col(Comment.id) == comment_id))
            deleted = Subject("task", task_id, task.title, before={"comment_id": comment_id})
            await record(connection, call.actor, "comment_deleted", now, deleted)
        return Deleted(id=comment_id)

    async def _get(self, task_id: uuid.UUID, comment_id: uuid.UUID) -> CommentOutput:
        async with self.reads.connect() as connection:
            await get_task(connection, task_id)
            return await _get_comment(connection, task_id, comment_id)

    async def _require_author(
        self, call: Call[InputT], task_id: uuid.UUID, comment_id: uuid.UUID, operation: str
    ) -> None:
        # Outside the transaction of the change, because a comment never gets another author.
        comment = await self._get(task_id, comment_id)
        if call.actor is not None and comment.author_id != call.actor.id:
            self.authorizer.refuse(NotTheAuthor(), operation)


async def _lock_comment(
    connection: AsyncConnection, actor: Actor | None, task_id: uuid.UUID, comment_id: uuid.UUID
) -> tuple[TaskOutput, CommentOutput]:
    # No lock on the comment: comments change only while their task is locked.
    await lock_users(connection, actor)
    return await get_task(connection, task_id, lock=True), await _get_comment(connection, task_id, comment_id)


async def _get_comment(connection: AsyncConnection, task_id: uuid.UUID, comment_id: uuid.UUID) -> CommentOutput:
    of_task = (col(Comment.id) == comment_id, col(Comment.task_id) == task_id)
    query = select(*CommentOutput.columns(Comment)).where(*of_task)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise CommentNotFound
    return CommentOutput.model_validate(row)


def _ids(call: Call[InputT]) -> tuple[uuid.UUID, uuid.UUID]:
    return call.path_id(TaskNotFound()), call.path_id(CommentNotFound(), "comment_id")
