"""All errors of the API, and the one table that maps them to HTTP statuses. Their messages are part of the contract."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from chassis.errors import (
    AlreadyExists,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unavailable,
)

INTERNAL = "Internal server error"


class BadRequest(InvalidArgument):
    """The request's body, query or headers are invalid; `violations` name the fields and never contain their values."""

    def __init__(self, message: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(*violations, message=message)


class WeakPassword(BadRequest):
    """The policy does not allow the password."""

    def __init__(
        self, rule: str = "is too short, too long or known from a data breach", field: str = "password"
    ) -> None:
        super().__init__(f"Password {rule}", [FieldViolation(field, rule)])


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


class UnknownTimeZone(BadRequest):
    """The parameter `tz` names no time zone, or one that only a newer version of the database server knows."""

    RULE = "must be a time zone of the IANA database, such as Europe/Berlin"

    def __init__(self) -> None:
        super().__init__(f"tz {self.RULE}", [FieldViolation("tz", self.RULE)])


class InvalidCredentials(DomainError):
    """No user has that e-mail, or the password is wrong; the message must not reveal which."""

    def __init__(self) -> None:
        super().__init__("Invalid email or password")


class AuthenticationRequired(DomainError):
    """The operation requires a session, and the request has no valid one."""

    def __init__(self) -> None:
        super().__init__("Authentication required")


class ManagementRoleRequired(DomainError):
    """The session's user does not have one of the management roles."""

    def __init__(self) -> None:
        # The reason is a label value of the metric `shop.employee_api.refusals`, on which dashboards may depend.
        super().__init__("Not allowed", reason="LEADERS_ONLY")


class CrossSiteRequest(DomainError):
    """A browser sent the request from a page of another origin, which the settings do not allow."""

    def __init__(self) -> None:
        super().__init__("Requests from other sites are not allowed")


class JsonRequired(DomainError):
    """The body is not declared to be JSON."""

    def __init__(self) -> None:
        super().__init__("Content-Type must be application/json")


class MalformedHost(BadRequest):
    """The request has several `Host` headers, or one that is not a host and a port."""

    def __init__(self) -> None:
        super().__init__("Invalid Host header", [FieldViolation("Host", "must be a host, or a host and a port")])


class PreflightRefused(BadRequest):
    """A page of another origin may not send the request that its browser announces; the message names the cause."""

    def __init__(self, message: str = "Disallowed CORS origin") -> None:
        super().__init__(message)


class HostNotServed(DomainError):
    """The settings do not list the request's host."""

    def __init__(self) -> None:
        super().__init__("This host is not served here")


class ApprovalRequired(DomainError):
    """The session's user has registered, and no management role has given them a role yet."""

    def __init__(self) -> None:
        super().__init__("Your account awaits approval")


class SessionRequired(DomainError):
    """The operation concerns the user themself, and the request has an API token."""

    def __init__(self) -> None:
        super().__init__("Log in for this: API tokens can't do it")


class ScopeRequired(DomainError):
    """The API token lacks the scope of the operation."""

    def __init__(self, scope: str = "tasks:read") -> None:
        super().__init__(f"The API token lacks the scope {scope}", metadata={"scope": scope})


class NotTheAuthor(DomainError):
    """The comment is by someone else than the session's user."""

    def __init__(self) -> None:
        super().__init__("Only its author may do this")


class WrongPassword(DomainError):
    """The current password is wrong. It is no 401: the session is valid."""

    def __init__(self) -> None:
        super().__init__("Current password is wrong")


class InvalidPasswordReset(DomainError):
    """The token never existed, was used or replaced, has expired, or its creator may no longer allow this."""

    def __init__(self) -> None:
        super().__init__("Password reset is invalid or used")


class RegistrationClosed(DomainError):
    """Only management users add employees: `REGISTRATION`, or its default, allows no one to register."""

    def __init__(self) -> None:
        super().__init__("Registration is closed")


class InvitationRequired(DomainError):
    """Only those whom a management user has invited may register."""

    def __init__(self) -> None:
        super().__init__("An invitation is required")


class InvalidInvitation(DomainError):
    """The invitation never existed, was used or withdrawn, has expired, or its creator may no longer invite."""

    def __init__(self) -> None:
        super().__init__("Invitation is invalid or used")


class UserNotFound(NotFound):
    """No user has that id."""

    def __init__(self) -> None:
        super().__init__("User not found")


class InvitationNotFound(NotFound):
    """No unused invitation has that id."""

    def __init__(self) -> None:
        super().__init__("Invitation not found")


class SessionNotFound(NotFound):
    """The user has no session with that id."""

    def __init__(self) -> None:
        super().__init__("Session not found")


class TokenNotFound(NotFound):
    """The user has no API token with that id."""

    def __init__(self) -> None:
        super().__init__("API token not found")


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


class EmailTaken(AlreadyExists):
    """Another user has that e-mail."""

    def __init__(self) -> None:
        super().__init__("Email already registered")


class LastManagementUser(FailedPrecondition):
    """Without this user no one could add or delete employees."""

    def __init__(self, change: str = "deleted") -> None:
        super().__init__(f"The last leader can't be {change}")


class TooManyTokens(FailedPrecondition):
    """The user has as many API tokens as one may have."""

    def __init__(self) -> None:
        super().__init__("Too many API tokens: revoke one first")


class TooManyFailedLogins(ResourceExhausted):
    """Too many logins failed from this address or for this e-mail."""

    def __init__(self, retry_after_seconds: float = 0) -> None:
        super().__init__("Too many failed logins", retry_after_seconds=retry_after_seconds)


class TooManyRegistrations(ResourceExhausted):
    """Too many registrations have come from this address."""

    def __init__(self, retry_after_seconds: float = 0) -> None:
        super().__init__("Too many registrations", retry_after_seconds=retry_after_seconds)


class TooManyPasswords(Unavailable):
    """Too many other requests wait for a thread to hash or verify their password."""

    def __init__(self) -> None:
        super().__init__("Too many logins or registrations at once", retry_after_seconds=5)


class TooManyExports(ResourceExhausted):
    """Each export occupies a database connection until its client has read everything."""

    def __init__(self) -> None:
        super().__init__("Too many exports at once", retry_after_seconds=5)


class PreconditionFailed(DomainError):
    """The resource is not in the state that the request's `If-Match` requires: a change came first."""

    def __init__(self) -> None:
        super().__init__("Changed since it was read")


class IdempotencyKeyReused(DomainError):
    """The caller has already sent this Idempotency-Key to the operation, with other input."""

    def __init__(self) -> None:
        super().__init__("Idempotency-Key was already used for a different request")


class DatabaseUnavailable(Unavailable):
    """The database can't be reached, has no free connection, or takes no changes; whether it made one is unknown."""

    def __init__(self) -> None:
        super().__init__("The database is not available", retry_after_seconds=5)


class NotReady(Unavailable):
    """The database does not answer, its migrations have not run, or the process is shutting down."""

    def __init__(self) -> None:
        super().__init__("Not ready")


class PathNotFound(NotFound):
    """Nothing is served at the path."""

    def __init__(self) -> None:
        super().__init__("Not Found", reason="NOT_FOUND")


class MethodNotAllowed(DomainError):
    """The path does not support the method; the header `Allow` lists those that it supports."""

    def __init__(self) -> None:
        super().__init__("Method Not Allowed")


class UnexpectedError(Internal):
    """The server failed; its log has the details, under the request's id."""

    def __init__(self) -> None:
        super().__init__(INTERNAL, reason="INTERNAL")


HTTP_STATUSES: Mapping[type[DomainError], HTTPStatus] = {
    InvalidArgument: HTTPStatus.BAD_REQUEST,
    InvalidCredentials: HTTPStatus.UNAUTHORIZED,
    AuthenticationRequired: HTTPStatus.UNAUTHORIZED,
    ApprovalRequired: HTTPStatus.FORBIDDEN,
    CrossSiteRequest: HTTPStatus.FORBIDDEN,
    HostNotServed: HTTPStatus.MISDIRECTED_REQUEST,
    JsonRequired: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    ManagementRoleRequired: HTTPStatus.FORBIDDEN,
    SessionRequired: HTTPStatus.FORBIDDEN,
    ScopeRequired: HTTPStatus.FORBIDDEN,
    NotTheAuthor: HTTPStatus.FORBIDDEN,
    WrongPassword: HTTPStatus.FORBIDDEN,
    InvalidPasswordReset: HTTPStatus.FORBIDDEN,
    RegistrationClosed: HTTPStatus.FORBIDDEN,
    InvitationRequired: HTTPStatus.FORBIDDEN,
    InvalidInvitation: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    AlreadyExists: HTTPStatus.CONFLICT,
    FailedPrecondition: HTTPStatus.CONFLICT,
    MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    PreconditionFailed: HTTPStatus.PRECONDITION_FAILED,
    IdempotencyKeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    ResourceExhausted: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    Internal: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def http_status(error: DomainError) -> HTTPStatus:
    """Return the status of the error's nearest class in HTTP_STATUSES."""
    return next(HTTP_STATUSES[kind] for kind in type(error).__mro__ if kind in HTTP_STATUSES)


def error_anchor(reason: str) -> str:
    """Return the id of the section of `/docs` that explains the errors with this reason."""
    return f"error-{reason.lower().replace('_', '-')}"


def every_error() -> list[DomainError]:
    """Return an example of each error."""
    kinds: list[Callable[[], DomainError]] = [
        kind
        for kind in globals().values()
        if isinstance(kind, type) and issubclass(kind, DomainError) and kind.__module__ == __name__
    ]
    return [kind() for kind in kinds]
