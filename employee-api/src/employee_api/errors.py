"""The errors of the API. Names, statuses and texts are part of the contract, and `/docs` shows the docstrings."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import ClassVar

from chassis.errors import DomainError, FieldViolation


class ApiError(DomainError):
    """An error that a client sees. Subclasses set its constant parts as class arguments."""

    status: ClassVar[HTTPStatus]
    text: ClassVar[str]
    violation: ClassVar[FieldViolation | None] = None
    wait_seconds: ClassVar[float | None] = None

    def __init_subclass__(
        cls,
        status: int | None = None,
        text: str | None = None,
        reason: str | None = None,
        violation: tuple[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init_subclass__()
        cls.default_reason = reason or cls.default_reason
        cls.status = HTTPStatus(status or cls.status)
        cls.text = text or cls.text
        cls.violation = FieldViolation(*violation) if violation else None
        cls.wait_seconds = retry_after_seconds

    def __init__(
        self,
        text: str | None = None,
        violations: Sequence[FieldViolation] = (),
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        wait_seconds = self.wait_seconds if retry_after_seconds is None else retry_after_seconds
        super().__init__(text or self.text, metadata=metadata, retry_after_seconds=wait_seconds)
        self.violations = violations or ([self.violation] if self.violation else [])


# Any request


class BadRequest(ApiError, status=400, text="Invalid request"):
    """The request's body, query or headers are invalid. Each invalid field is named, without its value."""


class PreflightRefused(BadRequest, text="Disallowed CORS origin"):
    """A page of another origin may not send the request that its browser announces; the message names the cause."""


class AuthenticationRequired(ApiError, status=401, text="Authentication required"):
    """The operation requires a session, and the request has no valid one."""


class CrossSiteRequest(ApiError, status=403, text="Requests from other sites are not allowed"):
    """A browser sent the request from a page of another origin, which the settings do not allow."""


# The reason is a label value of the metric `shop.employee_api.refusals`, on which dashboards may depend.
class ManagementRoleRequired(ApiError, status=403, text="Not allowed", reason="LEADERS_ONLY"):
    """The session's user has no management role."""


class HigherRoleRequired(ApiError, status=403, text="Only a higher role may do this"):
    """The user or role does not rank below your own role; a CEO may do everything but reset their own password."""


class ApprovalRequired(ApiError, status=403, text="Your account awaits approval"):
    """The session's user has registered, but has not been given a role yet."""


class SessionRequired(ApiError, status=403, text="Log in for this: API tokens can't do it"):
    """The operation concerns the user themself, and the request has an API token."""


class ScopeRequired(ApiError, status=403, text="The API token lacks the scope {}"):
    """The API token lacks the scope of the operation."""

    def __init__(self, scope: str = "tasks:read") -> None:
        super().__init__(self.text.format(scope), metadata={"scope": scope})


class PathNotFound(ApiError, status=404, text="Not Found", reason="NOT_FOUND"):
    """Nothing is served at the path."""


class MethodNotAllowed(ApiError, status=405, text="Method Not Allowed"):
    """The path does not support the method; the header `Allow` lists the methods that it supports."""


class PreconditionFailed(ApiError, status=412, text="Changed since it was read"):
    """The resource has changed: its entity tag is not one that the request's `If-Match` lists."""


class JsonRequired(ApiError, status=415, text="Content-Type must be application/json"):
    """The content type of the body is not JSON."""


class HostNotServed(ApiError, status=421, text="This host is not served here"):
    """The settings do not list the request's host."""


class IdempotencyKeyReused(ApiError, status=422, text="Idempotency-Key was already used for a different request"):
    """The caller has already sent this Idempotency-Key to the operation with different input."""


class UnexpectedError(ApiError, status=500, text="Internal server error", reason="INTERNAL"):
    """The server failed; its log has the details under the request's id."""


class DatabaseUnavailable(ApiError, status=503, text="The database is not available", retry_after_seconds=5):
    """The database is unreachable, overloaded or read-only; whether it has made the change is unknown."""


class NotReady(ApiError, status=503, text="Not ready"):
    """The database does not answer, its migrations have not run, or the process is shutting down."""


# Logins, sessions and API tokens


class InvalidCredentials(ApiError, status=401, text="Invalid email or password"):
    """No user has that e-mail, or the password is wrong; the message must not reveal which."""


class TooManyFailedLogins(ApiError, status=429, text="Too many failed logins", retry_after_seconds=0):
    """Too many logins failed from this address or for this e-mail."""


class SessionNotFound(ApiError, status=404, text="Session not found"):
    """The user has no session with that id."""


class TokenNotFound(ApiError, status=404, text="API token not found"):
    """The user has no API token with that id."""


class TooManyTokens(ApiError, status=409, text="Too many API tokens: revoke one first"):
    """The user already has the maximum number of API tokens."""


# Accounts, passwords, registrations and invitations


class UserNotFound(ApiError, status=404, text="User not found"):
    """No user has that id."""


class EmailTaken(ApiError, status=409, text="Email already registered"):
    """Another user has that e-mail."""


class LastManagementUser(ApiError, status=409, text="The last leader can't be {}"):
    """Without this user, no one could add or delete employees."""

    def __init__(self, change: str = "deleted") -> None:
        super().__init__(self.text.format(change))


class WeakPassword(BadRequest, text="Password {}"):
    """The policy does not allow the password."""

    def __init__(
        self, rule: str = "is too short, too long or known from a data breach", field: str = "password"
    ) -> None:
        super().__init__(self.text.format(rule), [FieldViolation(field, rule)])


class WrongPassword(ApiError, status=403, text="Current password is wrong"):
    """The current password is wrong. The status is not 401 because the session is valid."""


class TooManyPasswords(ApiError, status=503, text="Too many logins or registrations at once", retry_after_seconds=5):
    """Too many other requests are waiting for a password to be hashed or verified."""


class InvalidPasswordReset(ApiError, status=403, text="Password reset is invalid or used"):
    """The token is unknown, used, replaced or expired, or its creator may no longer reset this password."""


class RegistrationClosed(ApiError, status=403, text="Registration is closed"):
    """Only management roles can add employees: the setting `REGISTRATION` allows no one to register."""


class InvitationRequired(ApiError, status=403, text="An invitation is required"):
    """Only people whom a management role has invited may register."""


class InvalidInvitation(ApiError, status=403, text="Invitation is invalid or used"):
    """The invitation is unknown, used, withdrawn or expired, or its creator may no longer invite."""


class InvitationNotFound(ApiError, status=404, text="Invitation not found"):
    """No unused invitation has that id."""


class TooManyRegistrations(ApiError, status=429, text="Too many registrations", retry_after_seconds=0):
    """Too many registrations have come from this address."""


# Tasks, comments and exports


class TaskNotFound(ApiError, status=404, text="Task not found"):
    """No task has that id."""


class SomeTasksNotFound(ApiError, status=404, text="A task was not found, and none was changed"):
    """One of several tasks to change does not exist."""


class CommentNotFound(ApiError, status=404, text="Comment not found"):
    """The task has no comment with that id."""


class NotTheAuthor(ApiError, status=403, text="Only its author may do this"):
    """Someone other than the session's user wrote the comment."""


class UnknownAssignee(BadRequest, text="Unknown assignee", violation=("assignee_id", "is no user's id")):
    """A task names an assignee who does not exist."""


class UnknownReporter(BadRequest, text="Unknown reporter", violation=("reporter_id", "is no user's id")):
    """A task names a reporter who does not exist."""


class UnknownAuthor(BadRequest, text="Unknown author", violation=("author_id", "is no user's id")):
    """A comment names an author who does not exist."""


class TooManyExports(ApiError, status=429, text="Too many exports at once", retry_after_seconds=5):
    """Each export occupies a database connection until its client has read it completely."""


ZONE_RULE = "must be a time zone of the IANA database, such as Europe/Berlin"


class UnknownTimeZone(BadRequest, text=f"tz {ZONE_RULE}", violation=("tz", ZONE_RULE)):
    """The parameter `tz` names no time zone, or one that the database server does not know yet."""


NOT_FOUND: dict[str, type[ApiError]] = {
    "users": UserNotFound,
    "sessions": SessionNotFound,
    "tokens": TokenNotFound,
    "invitations": InvitationNotFound,
    "tasks": TaskNotFound,
    "comments": CommentNotFound,
}
"""The error for an unknown id, by the segment before it in a path."""
