"""Errors of logins, sessions and API tokens. Their messages are part of the contract."""

from chassis.errors import FailedPrecondition, NotFound, ResourceExhausted
from employee_api.errors import Unauthenticated


class InvalidCredentials(Unauthenticated):
    """No user has that e-mail, or the password is wrong; the message must not reveal which."""

    def __init__(self) -> None:
        super().__init__("Invalid email or password")


class TooManyFailedLogins(ResourceExhausted):
    """Too many logins failed from this address or for this e-mail."""

    def __init__(self, retry_after_seconds: float = 0) -> None:
        super().__init__("Too many failed logins", retry_after_seconds=retry_after_seconds)


class SessionNotFound(NotFound):
    """The user has no session with that id."""

    def __init__(self) -> None:
        super().__init__("Session not found")


class TokenNotFound(NotFound):
    """The user has no API token with that id."""

    def __init__(self) -> None:
        super().__init__("API token not found")


class TooManyTokens(FailedPrecondition):
    """The user has as many API tokens as one may have."""

    def __init__(self) -> None:
        super().__init__("Too many API tokens: revoke one first")
