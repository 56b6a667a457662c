"""Handles comments on tasks. Activities record every change to a comment, but not the comment's text."""

import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlmodel import col

from employee_api.access import Access
from employee_api.activities import Subject, record
from employee_api.database import Repository, transaction
from employee_api.errors import CommentNotFound, NotTheAuthor, UnknownAuthor
from employee_api.http.authorization import Authorizer
from employee_api.http.operations import Call, operation
from employee_api.models import Comment
from employee_api.pagination import PageQuery, fetch_page
from employee_api.schemas import Deleted
from employee_api.tasks.schemas import CommentInput, CommentOutput, CommentPage, CommentPatch, TaskOutput
from employee_api.tasks.tasks import get_task, lock_users


@dataclass
class CommentHandlers(Repository):
    """Only the author may edit a comment. The author and users with a management role may delete it."""

    authorizer: Authorizer

    @operation("GET", "/api/tasks/{id}/comments", "List the comments on a task, newest first", Access.SESSION)
    async def list_comments(self, call: Call[PageQuery]) -> CommentPage:
        async with self.reads.connect() as connection:
            await get_task(connection, call.id)
        matching = select(*CommentOutput.columns(Comment)).where(col(Comment.task_id) == call.id)
        return await fetch_page(self, matching, Comment, call.input, CommentPage)

    @operation("GET", "/api/tasks/{id}/comments/{comment_id}", "Get a comment", Access.SESSION)
    async def get_comment(self, call: Call[None]) -> CommentOutput:
        async with self.reads.connect() as connection:
            await get_task(connection, call.id)
            return await _get_comment(connection, call)

    @operation(
        "POST", "/api/tasks/{id}/comments", "Comment on a task", Access.SESSION, creates=True, repeatable=True,
        failures=(UnknownAuthor(),),
    )  # fmt: skip
    async def add_comment(self, call: Call[CommentInput]) -> CommentOutput:
        """Add a comment by the signed-in caller or, if nobody is signed in, by the author named in the request."""
        task_id, now, body = call.id, self.clock(), call.input.body
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
        return comment

    @operation(
        "PATCH", "/api/tasks/{id}/comments/{comment_id}", "Edit a comment of one's own", Access.SESSION,
        enforced_failures=(NotTheAuthor(),),
    )  # fmt: skip
    async def edit_comment(self, call: Call[CommentPatch]) -> CommentOutput:
        """Replace the comment's text. If the text is unchanged, record no edit."""
        await self._require_author(call, "edit_comment")
        now, body = self.clock(), call.input.body
        async with transaction(self.engine) as connection:
            task, comment = await _lock_comment(connection, call)
            if body == comment.body:
                return comment
            values = {"body": body, "edited_at": now}
            await connection.execute(update(Comment).where(col(Comment.id) == comment.id).values(values))
            unchanged = {"comment_id": comment.id}
            edited = Subject("task", task.id, task.title, unchanged, unchanged)
            await record(connection, call.actor, "comment_edited", now, edited)
        return comment.model_copy(update=values)

    @operation(
        "DELETE", "/api/tasks/{id}/comments/{comment_id}", "Delete a comment: one's own, or any with a management role",
        Access.SESSION, enforced_failures=(NotTheAuthor(),),
    )  # fmt: skip
    async def delete_comment(self, call: Call[None]) -> Deleted:
        if call.actor is not None and not call.actor.manages:
            await self._require_author(call, "delete_comment")
        now = self.clock()
        async with transaction(self.engine) as connection:
            task, comment = await _lock_comment(connection, call)
            await connection.execute(delete(Comment).where(col(Comment.id) == comment.id))
            deleted = Subject("task", task.id, task.title, before={"comment_id": comment.id})
            await record(connection, call.actor, "comment_deleted", now, deleted)
        return Deleted(id=comment.id)

    async def _require_author(self, call: Call[Any], operation: str) -> None:
        # No lock is needed, because a comment's author never changes.
        comment = await self.get_comment(call)
        if call.actor is not None and comment.author_id != call.actor.id:
            self.authorizer.refuse(NotTheAuthor(), operation)


async def _lock_comment(connection: AsyncConnection, call: Call[Any]) -> tuple[TaskOutput, CommentOutput]:
    # The comment needs no lock, because comments change only while their task is locked.
    await lock_users(connection, call.actor)
    return await get_task(connection, call.id, lock=True), await _get_comment(connection, call)


async def _get_comment(connection: AsyncConnection, call: Call[Any]) -> CommentOutput:
    of_task = (col(Comment.id) == call.ids["comment_id"], col(Comment.task_id) == call.id)
    query = select(*CommentOutput.columns(Comment)).where(*of_task)
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        raise CommentNotFound
    return CommentOutput.model_validate(row)
