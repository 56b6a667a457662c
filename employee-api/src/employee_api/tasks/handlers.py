"""Handlers of tasks and comments."""

import uuid
from dataclasses import dataclass

from employee_api.errors import CommentNotFound, NotTheAuthor, TaskNotFound
from employee_api.http.operations import Authorizer, Call, InputT
from employee_api.pagination import PageQuery
from employee_api.schemas import Deleted
from employee_api.tasks.comments import CommentRepository
from employee_api.tasks.repository import TaskRepository
from employee_api.tasks.schemas import (
    AssignmentOutput,
    CommentInput,
    CommentOutput,
    CommentPage,
    CommentPatch,
    TaskAssignment,
    TaskInput,
    TaskOutput,
    TaskPage,
    TaskPatch,
    TaskQuery,
)


@dataclass(frozen=True)
class TaskHandlers:
    tasks: TaskRepository

    async def list_tasks(self, call: Call[TaskQuery]) -> TaskPage:
        return await self.tasks.search(call.input)

    async def add_task(self, call: Call[TaskInput]) -> TaskOutput:
        task = await self.tasks.add(call.input, call.actor)
        call.location(f"/api/tasks/{task.id}")
        call.tag(task)
        return task

    async def assign_tasks(self, call: Call[TaskAssignment]) -> AssignmentOutput:
        changed = await self.tasks.assign(call.input.task_ids, call.input.assignee_id, call.actor)
        return AssignmentOutput(changed=changed)

    async def get_task(self, call: Call[None]) -> TaskOutput:
        task = await self.tasks.get(call.path_id(TaskNotFound()))
        call.tag(task)
        return task

    async def change_task(self, call: Call[TaskPatch]) -> TaskOutput:
        task_id = call.path_id(TaskNotFound())
        task = await self.tasks.update(task_id, call.input, call.actor, if_match=call.if_match)
        call.tag(task)
        return task

    async def delete_task(self, call: Call[None]) -> Deleted:
        task_id = call.path_id(TaskNotFound())
        await self.tasks.delete(task_id, call.actor, if_match=call.if_match)
        return Deleted(id=task_id)


@dataclass(frozen=True)
class CommentHandlers:
    """Only the author may edit a comment, and only they and management roles may delete it."""

    comments: CommentRepository
    authorizer: Authorizer

    async def list_comments(self, call: Call[PageQuery]) -> CommentPage:
        return await self.comments.list_all(call.path_id(TaskNotFound()), call.input)

    async def add_comment(self, call: Call[CommentInput]) -> CommentOutput:
        task_id = call.path_id(TaskNotFound())
        comment = await self.comments.add(task_id, call.input, call.actor)
        call.location(f"/api/tasks/{task_id}/comments/{comment.id}")
        return comment

    async def get_comment(self, call: Call[None]) -> CommentOutput:
        return await self.comments.get(*_comment_ids(call))

    async def edit_comment(self, call: Call[CommentPatch]) -> CommentOutput:
        task_id, comment_id = _comment_ids(call)
        await self._require_author(call, task_id, comment_id, "edit_comment")
        return await self.comments.update(task_id, comment_id, call.input, call.actor)

    async def delete_comment(self, call: Call[None]) -> Deleted:
        task_id, comment_id = _comment_ids(call)
        if call.actor is not None and not call.actor.manages:
            await self._require_author(call, task_id, comment_id, "delete_comment")
        await self.comments.delete(task_id, comment_id, call.actor)
        return Deleted(id=comment_id)

    async def _require_author(
        self, call: Call[InputT], task_id: uuid.UUID, comment_id: uuid.UUID, operation: str
    ) -> None:
        # Outside the transaction of the change, because a comment never gets another author.
        comment = await self.comments.get(task_id, comment_id)
        if call.actor is not None and comment.author_id != call.actor.id:
            self.authorizer.refuse(NotTheAuthor(), operation)


def _comment_ids(call: Call[InputT]) -> tuple[uuid.UUID, uuid.UUID]:
    return call.path_id(TaskNotFound()), call.path_id(CommentNotFound(), "comment_id")
