"""What can go wrong, and the one table that says which status and text a caller gets for it."""

from collections.abc import Mapping
from http import HTTPStatus

from chassis.errors import (
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)

INTERNAL = "Internal server error"


class BadRequest(InvalidArgument):
    """The request breaks the operation's rules; the text is the operation's own."""

    def __init__(self, text: str = "Invalid request") -> None:
        super().__init__(message=text)


class UnknownAssignee(BadRequest):
    """A task names an assignee who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown assignee")


class UnknownReporter(BadRequest):
    """A task names a reporter who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown reporter")


class UnknownAuthor(BadRequest):
    """A comment names an author who does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown author")


class InvalidCredentials(DomainError):
    """No user has that e-mail, or the password is another one: which of them is not told."""

    def __init__(self) -> None:
        super().__init__("Invalid email or password")


class AuthenticationRequired(DomainError):
    """The operation needs a session, and the request has none that is valid."""

    def __init__(self) -> None:
        super().__init__("Authentication required")


class LeadersOnly(DomainError):
    """The session's user has no role that may do this."""

    def __init__(self) -> None:
        super().__init__("Not allowed")


class UserNotFound(NotFound):
    """No user has that id."""

    def __init__(self) -> None:
        super().__init__("User not found")


class TaskNotFound(NotFound):
    """No task has that id."""

    def __init__(self) -> None:
        super().__init__("Task not found")


class EmailTaken(AlreadyExists):
    """Another user has that e-mail."""

    def __init__(self) -> None:
        super().__init__("Email already registered")


class LastLeader(FailedPrecondition):
    """Without this user nobody could add or delete employees."""

    def __init__(self) -> None:
        super().__init__("The last leader can't be deleted")


class TooManyFailedLogins(ResourceExhausted):
    """Too many logins failed from this address or for this e-mail."""

    def __init__(self, retry_after_seconds: float = 0) -> None:
        super().__init__("Too many failed logins", retry_after_seconds=retry_after_seconds)


class TooManyExports(ResourceExhausted):
    """Each export keeps a database connection as long as its caller reads."""

    def __init__(self) -> None:
        super().__init__("Too many exports at once", retry_after_seconds=5)


class NotReady(Unavailable):
    """The database does not answer, its migrations have not run, or the process is about to stop."""

    def __init__(self) -> None:
        super().__init__("Not ready")


STATUSES: Mapping[type[DomainError], HTTPStatus] = {
    InvalidArgument: HTTPStatus.BAD_REQUEST,
    InvalidCredentials: HTTPStatus.UNAUTHORIZED,
    AuthenticationRequired: HTTPStatus.UNAUTHORIZED,
    LeadersOnly: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    FailedPrecondition: HTTPStatus.CONFLICT,
    ResourceExhausted: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: DomainError | type[DomainError]) -> HTTPStatus:
    """The status of an error, by the nearest kind in the table; raises KeyError for a kind that is not in it."""
    kinds = (error if isinstance(error, type) else type(error)).__mro__
    return next(STATUSES[kind] for kind in kinds if kind in STATUSES)
