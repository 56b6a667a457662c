"""Endpoints for comments on tasks."""

import uuid
from http import HTTPStatus

from employee_api.access import Access
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput, QueryParameters
from employee_api.http.operations import Authorizer, Call, Endpoint, InputT, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.pagination import PageQuery
from employee_api.schemas import Deleted
from employee_api.tasks.comments import CommentRepository
from employee_api.tasks.endpoints import parse_task_id
from employee_api.tasks.errors import CommentNotFound, NotTheAuthor, TaskNotFound, UnknownAuthor
from employee_api.tasks.schemas import CommentInput, CommentOutput, CommentPage, CommentPatch

_COMMENTS = "/api/tasks/{id}/comments"
_COMMENT = "/api/tasks/{id}/comments/{comment_id}"


class CommentEndpoints:
    """Operations on comments. Only the author may edit a comment, and only they and management roles may delete it."""

    def __init__(self, comments: CommentRepository, authorizer: Authorizer) -> None:
        self._comments = comments
        self._authorizer = authorizer

    def operations(self) -> list[Operation]:
        session, not_found, not_the_author = Access.SESSION, (TaskNotFound(), CommentNotFound()), (NotTheAuthor(),)
        return [
            Endpoint(
                "GET", _COMMENTS, "List the comments on a task, newest first",
                QueryParameters(PageQuery), JsonOutput(CommentPage), self.list_comments,
                access=session, failures=(TaskNotFound(),),
            ),
            Endpoint(
                "POST", _COMMENTS, "Comment on a task",
                JsonBody(CommentInput), JsonOutput(CommentOutput, HTTPStatus.CREATED), self.add_comment,
                access=session, repeatable=True, failures=(TaskNotFound(), UnknownAuthor()),
            ),
            Endpoint(
                "GET", _COMMENT, "Get a comment", NoInput(), JsonOutput(CommentOutput), self.get_comment,
                access=session, failures=not_found,
            ),
            Endpoint(
                "PATCH", _COMMENT, "Edit a comment of one's own",
                JsonBody(CommentPatch), JsonOutput(CommentOutput), self.edit_comment,
                access=session, failures=not_found, enforced_failures=not_the_author,
            ),
            Endpoint(
                "DELETE", _COMMENT, "Delete a comment: one's own, or any with a management role",
                NoInput(), JsonOutput(Deleted), self.delete_comment,
                access=session, failures=not_found, enforced_failures=not_the_author,
            ),
        ]  # fmt: skip

    async def list_comments(self, call: Call[PageQuery]) -> CommentPage:
        return await self._comments.list_all(parse_task_id(call), call.input)

    async def add_comment(self, call: Call[CommentInput]) -> CommentOutput:
        task_id = parse_task_id(call)
        comment = await self._comments.add(task_id, call.input, call.actor)
        call.location(f"/api/tasks/{task_id}/comments/{comment.id}")
        return comment

    async def get_comment(self, call: Call[None]) -> CommentOutput:
        return await self._comments.get(parse_task_id(call), _parse_comment_id(call))

    async def edit_comment(self, call: Call[CommentPatch]) -> CommentOutput:
        task_id, comment_id = parse_task_id(call), _parse_comment_id(call)
        await self._require_author(call, task_id, comment_id, "edit_comment")
        return await self._comments.update(task_id, comment_id, call.input, call.actor)

    async def delete_comment(self, call: Call[None]) -> Deleted:
        task_id, comment_id = parse_task_id(call), _parse_comment_id(call)
        if call.actor is not None and not call.actor.manages:
            await self._require_author(call, task_id, comment_id, "delete_comment")
        await self._comments.delete(task_id, comment_id, call.actor)
        return Deleted(id=comment_id)

    async def _require_author(
        self, call: Call[InputT], task_id: uuid.UUID, comment_id: uuid.UUID, operation: str
    ) -> None:
        # Outside the transaction of the change, because a comment never gets another author.
        comment = await self._comments.get(task_id, comment_id)
        if call.actor is not None and comment.author_id != call.actor.id:
            self._authorizer.refuse(NotTheAuthor(), operation)


def _parse_comment_id(call: Call[InputT]) -> uuid.UUID:
    comment_id = parse_id(call.request.path_params["comment_id"])
    if comment_id is None:
        raise CommentNotFound
    return comment_id
