"""Errors of requests to any operation: headers, origins, rights, failures. Their messages are part of the contract."""

from chassis.errors import DomainError, FieldViolation, Internal, NotFound, Unavailable
from employee_api.errors import BadRequest, Forbidden


class CrossSiteRequest(Forbidden):
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


class PathNotFound(NotFound):
    """Nothing is served at the path."""

    def __init__(self) -> None:
        super().__init__("Not Found", reason="NOT_FOUND")


class MethodNotAllowed(DomainError):
    """The path does not support the method; the header `Allow` lists those that it supports."""

    def __init__(self) -> None:
        super().__init__("Method Not Allowed")


class IdempotencyKeyReused(DomainError):
    """The caller has already sent this Idempotency-Key to the operation, with other input."""

    def __init__(self) -> None:
        super().__init__("Idempotency-Key was already used for a different request")


class ManagementRoleRequired(Forbidden):
    """The session's user does not have one of the management roles."""

    def __init__(self) -> None:
        # The reason is a label value of the metric `shop.employee_api.refusals`, on which dashboards may depend.
        super().__init__("Not allowed", reason="LEADERS_ONLY")


class ApprovalRequired(Forbidden):
    """The session's user has registered, and no management role has given them a role yet."""

    def __init__(self) -> None:
        super().__init__("Your account awaits approval")


class SessionRequired(Forbidden):
    """The operation concerns the user themself, and the request has an API token."""

    def __init__(self) -> None:
        super().__init__("Log in for this: API tokens can't do it")


class ScopeRequired(Forbidden):
    """The API token lacks the scope of the operation."""

    def __init__(self, scope: str = "tasks:read") -> None:
        super().__init__(f"The API token lacks the scope {scope}", metadata={"scope": scope})


class DatabaseUnavailable(Unavailable):
    """The database can't be reached, has no free connection, or takes no changes; whether it made one is unknown."""

    def __init__(self) -> None:
        super().__init__("The database is not available", retry_after_seconds=5)


class UnexpectedError(Internal):
    """The server failed; its log has the details, under the request's id."""

    def __init__(self) -> None:
        super().__init__("Internal server error", reason="INTERNAL")
