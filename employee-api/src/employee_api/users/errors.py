"""Errors of accounts, passwords, registrations and invitations. Their messages are part of the contract."""

from chassis.errors import AlreadyExists, FailedPrecondition, FieldViolation, NotFound, ResourceExhausted, Unavailable
from employee_api.errors import BadRequest, Forbidden


class UserNotFound(NotFound):
    """No user has that id."""

    def __init__(self) -> None:
        super().__init__("User not found")


class EmailTaken(AlreadyExists):
    """Another user has that e-mail."""

    def __init__(self) -> None:
        super().__init__("Email already registered")


class LastManagementUser(FailedPrecondition):
    """Without this user no one could add or delete employees."""

    def __init__(self, change: str = "deleted") -> None:
        super().__init__(f"The last leader can't be {change}")


class WeakPassword(BadRequest):
    """The policy does not allow the password."""

    def __init__(
        self, rule: str = "is too short, too long or known from a data breach", field: str = "password"
    ) -> None:
        super().__init__(f"Password {rule}", [FieldViolation(field, rule)])


class WrongPassword(Forbidden):
    """The current password is wrong. It is no 401: the session is valid."""

    def __init__(self) -> None:
        super().__init__("Current password is wrong")


class TooManyPasswords(Unavailable):
    """Too many other requests wait for a thread to hash or verify their password."""

    def __init__(self) -> None:
        super().__init__("Too many logins or registrations at once", retry_after_seconds=5)


class InvalidPasswordReset(Forbidden):
    """The token never existed, was used or replaced, has expired, or its creator may no longer allow this."""

    def __init__(self) -> None:
        super().__init__("Password reset is invalid or used")


class RegistrationClosed(Forbidden):
    """Only management users add employees: `REGISTRATION`, or its default, allows no one to register."""

    def __init__(self) -> None:
        super().__init__("Registration is closed")


class InvitationRequired(Forbidden):
    """Only those whom a management user has invited may register."""

    def __init__(self) -> None:
        super().__init__("An invitation is required")


class InvalidInvitation(Forbidden):
    """The invitation never existed, was used or withdrawn, has expired, or its creator may no longer invite."""

    def __init__(self) -> None:
        super().__init__("Invitation is invalid or used")


class InvitationNotFound(NotFound):
    """No unused invitation has that id."""

    def __init__(self) -> None:
        super().__init__("Invitation not found")


class TooManyRegistrations(ResourceExhausted):
    """Too many registrations have come from this address."""

    def __init__(self, retry_after_seconds: float = 0) -> None:
        super().__init__("Too many registrations", retry_after_seconds=retry_after_seconds)
