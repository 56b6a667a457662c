"""Errors of tasks and comments. Their messages are part of the contract."""

from chassis.errors import FieldViolation, NotFound
from employee_api.errors import BadRequest, Forbidden


class TaskNotFound(NotFound):
    """No task has that id."""

    def __init__(self) -> None:
        super().__init__("Task not found")


class SomeTasksNotFound(NotFound):
    """One of several tasks to change does not exist."""

    def __init__(self) -> None:
        super().__init__("A task was not found, and none was changed")


class CommentNotFound(NotFound):
    """The task has no comment with that id."""

    def __init__(self) -> None:
        super().__init__("Comment not found")


class NotTheAuthor(Forbidden):
    """The comment is by someone else than the session's user."""

    def __init__(self) -> None:
        super().__init__("Only its author may do this")


class UnknownAssignee(BadRequest):
    """A task names an assignee who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown assignee", [FieldViolation("assignee_id", "is no user's id")])


class UnknownReporter(BadRequest):
    """A task names a reporter who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown reporter", [FieldViolation("reporter_id", "is no user's id")])


class UnknownAuthor(BadRequest):
    """A comment names an author who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown author", [FieldViolation("author_id", "is no user's id")])
