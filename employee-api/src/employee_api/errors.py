"""Errors that several features raise, and kinds of errors that `chassis.errors` lacks.

Each package declares its own errors, and `http.statuses` maps all of them to HTTP statuses. Their messages are part of
the contract.
"""

from collections.abc import Sequence

from chassis.errors import DomainError, FieldViolation, InvalidArgument


class Unauthenticated(DomainError):
    """The client has not proved who it is."""


class Forbidden(DomainError):
    """The client may not do this."""


class BadRequest(InvalidArgument):
    """The request's body, query or headers are invalid. Each invalid field is named, without its value."""

    def __init__(self, message: str = "Invalid request", violations: Sequence[FieldViolation] = ()) -> None:
        super().__init__(*violations, message=message)


class AuthenticationRequired(Unauthenticated):
    """The operation requires a session, and the request has no valid one."""

    def __init__(self) -> None:
        super().__init__("Authentication required")


class PreconditionFailed(DomainError):
    """The resource is not in the state that the request's `If-Match` requires: a change came first."""

    def __init__(self) -> None:
        super().__init__("Changed since it was read")
