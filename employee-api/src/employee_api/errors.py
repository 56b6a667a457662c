"""API errors. Names, statuses and texts are part of the contract; `http/docs/errors.json` explains each error."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, ClassVar, cast

from chassis.errors import DomainError, FieldViolation

ZONE_RULE = "must be a time zone of the IANA database, such as Europe/Berlin"
_NO_USER = "is no user's id"


class ApiError(DomainError):
    """An error that is returned to the client. Constant attributes are set on the class."""

    status: ClassVar[HTTPStatus]
    text: ClassVar[str]
    violation: ClassVar[FieldViolation | None] = None
    wait_seconds: ClassVar[float | None] = None

    def __init__(
        self,
        text: str | None = None,
        violations: Sequence[FieldViolation] = (),
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        wait_seconds = self.wait_seconds if retry_after_seconds is None else retry_after_seconds
        violations = violations or ([self.violation] if self.violation else [])
        super().__init__(text or self.text, retry_after_seconds=wait_seconds, violations=violations)


class BadRequest(ApiError):
    status = HTTPStatus.BAD_REQUEST
    text = "Invalid request"


class WeakPassword(ApiError):
    status = HTTPStatus.BAD_REQUEST

    def __init__(
        self, rule: str = "is too short, too long or known from a data breach", field: str = "password"
    ) -> None:
        super().__init__(f"Password {rule}", [FieldViolation(field, rule)])


class ScopeRequired(ApiError):
    status = HTTPStatus.FORBIDDEN

    def __init__(self, scope: str = "tasks:read") -> None:
        super().__init__(f"The API token lacks the scope {scope}")


class LastManagementUser(ApiError):
    status = HTTPStatus.CONFLICT

    def __init__(self, change: str = "deleted") -> None:
        super().__init__(f"The last leader can't be {change}")


def _error(name: str, status: int, text: str, *, reason: str | None = None, **constants: Any) -> type[ApiError]:
    """Define an error class. Clients recognize the error by its reason, which by default is derived from `name`."""
    attributes = {"status": HTTPStatus(status), "text": text, "__module__": __name__} | constants
    kind = cast("type[ApiError]", type(name, (ApiError,), attributes))
    kind.default_reason = reason or kind.default_reason
    return kind


# Errors that can occur in any request
PreflightRefused = _error("PreflightRefused", 400, "Disallowed CORS origin")
AuthenticationRequired = _error("AuthenticationRequired", 401, "Authentication required")
CrossSiteRequest = _error("CrossSiteRequest", 403, "Requests from other sites are not allowed")
# Keep the old reason, because dashboards may filter the metric `shop.employee_api.refusals` by it.
ManagementRoleRequired = _error("ManagementRoleRequired", 403, "Not allowed", reason="LEADERS_ONLY")
HigherRoleRequired = _error("HigherRoleRequired", 403, "Only a higher role may do this")
ApprovalRequired = _error("ApprovalRequired", 403, "Your account awaits approval")
SessionRequired = _error("SessionRequired", 403, "Log in for this: API tokens can't do it")
PathNotFound = _error("PathNotFound", 404, "Not Found", reason="NOT_FOUND")
MethodNotAllowed = _error("MethodNotAllowed", 405, "Method Not Allowed")
PreconditionFailed = _error("PreconditionFailed", 412, "Changed since it was read")
JsonRequired = _error("JsonRequired", 415, "Content-Type must be application/json")
HostNotServed = _error("HostNotServed", 421, "This host is not served here")
IdempotencyKeyReused = _error("IdempotencyKeyReused", 422, "Idempotency-Key was already used for a different request")
UnexpectedError = _error("UnexpectedError", 500, "Internal server error", reason="INTERNAL")
DatabaseUnavailable = _error("DatabaseUnavailable", 503, "The database is not available", wait_seconds=5)
NotReady = _error("NotReady", 503, "Not ready")

# Logins, sessions and API tokens
InvalidCredentials = _error("InvalidCredentials", 401, "Invalid email or password")
TooManyFailedLogins = _error("TooManyFailedLogins", 429, "Too many failed logins", wait_seconds=0)
SessionNotFound = _error("SessionNotFound", 404, "Session not found")
TokenNotFound = _error("TokenNotFound", 404, "API token not found")
TooManyTokens = _error("TooManyTokens", 409, "Too many API tokens: revoke one first")

# Accounts, passwords, registrations and invitations
UserNotFound = _error("UserNotFound", 404, "User not found")
EmailTaken = _error("EmailTaken", 409, "Email already registered")
WrongPassword = _error("WrongPassword", 403, "Current password is wrong")
TooManyPasswords = _error("TooManyPasswords", 503, "Too many logins or registrations at once", wait_seconds=5)
InvalidPasswordReset = _error("InvalidPasswordReset", 403, "Password reset is invalid or used")
RegistrationClosed = _error("RegistrationClosed", 403, "Registration is closed")
InvitationRequired = _error("InvitationRequired", 403, "An invitation is required")
InvalidInvitation = _error("InvalidInvitation", 403, "Invitation is invalid or used")
InvitationNotFound = _error("InvitationNotFound", 404, "Invitation not found")
TooManyRegistrations = _error("TooManyRegistrations", 429, "Too many registrations", wait_seconds=0)

# Tasks, comments and exports
TaskNotFound = _error("TaskNotFound", 404, "Task not found")
SomeTasksNotFound = _error("SomeTasksNotFound", 404, "A task was not found, and none was changed")
CommentNotFound = _error("CommentNotFound", 404, "Comment not found")
NotTheAuthor = _error("NotTheAuthor", 403, "Only its author may do this")
UnknownAssignee = _error("UnknownAssignee", 400, "Unknown assignee", violation=FieldViolation("assignee_id", _NO_USER))
UnknownReporter = _error("UnknownReporter", 400, "Unknown reporter", violation=FieldViolation("reporter_id", _NO_USER))
UnknownAuthor = _error("UnknownAuthor", 400, "Unknown author", violation=FieldViolation("author_id", _NO_USER))
TooManyExports = _error("TooManyExports", 429, "Too many exports at once", wait_seconds=5)
UnknownTimeZone = _error("UnknownTimeZone", 400, f"tz {ZONE_RULE}", violation=FieldViolation("tz", ZONE_RULE))

NOT_FOUND = {
    "users": UserNotFound,
    "sessions": SessionNotFound,
    "tokens": TokenNotFound,
    "invitations": InvitationNotFound,
    "tasks": TaskNotFound,
    "comments": CommentNotFound,
}
"""Maps the path segment before an id to the error for an unknown id."""
