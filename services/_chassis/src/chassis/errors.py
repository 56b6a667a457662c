"""The kinds of errors that all services share. `chassis.rpc.status` maps each kind to a gRPC status and back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True)
class FieldViolation:
    field: str  # a path, such as `item.quantity`
    rule: str


class DomainError(Exception):
    """An error that is reported to callers. Its message must never contain a secret or quote an invalid value.

    Callers branch on `reason`, which is derived from the class name by default: `class ProductNotFound(NotFound)`
    reaches them as NOT_FOUND with the reason `PRODUCT_NOT_FOUND`.
    """

    default_reason: ClassVar[str] = "DOMAIN_ERROR"

    def __init_subclass__(cls) -> None:
        # The reason is part of the API contract, so renaming an error class breaks clients.
        cls.default_reason = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})  # copy the mapping, because error handlers may add to it
        self.retry_after_seconds = retry_after_seconds
        self.violations = tuple(violations)


class InvalidArgument(DomainError):
    """The request is invalid, regardless of the system's state. `violations` lists the invalid fields."""

    @classmethod
    def field(cls, field: str, rule: str) -> Self:
        # Quote only the rule, never the value, because the message is logged and shown on web pages.
        return cls(f"{field}: {rule}", violations=[FieldViolation(field, rule)])


class NotFound(DomainError):
    """The requested object does not exist."""


class AlreadyExists(DomainError):
    """The object to be created already exists."""


class FailedPrecondition(DomainError):
    """The request is valid, but the system's state doesn't allow it; a retry won't help."""


class Aborted(DomainError):
    """The request conflicted with a concurrent one; retrying the whole operation may succeed."""


class OutOfRange(DomainError):
    """A result is too large for its type."""


class ResourceExhausted(DomainError):
    """The service has reached a limit, so it rejected the request without acting on it."""


class PermissionDenied(DomainError):
    """The service's settings don't allow this caller to call the method. Our clients raise Unavailable instead."""


class Unavailable(DomainError):
    """A store or a peer cannot be reached; a retry may succeed."""


class PeerBroken(Unavailable):
    """A peer's response violates the API contract. The operation may or may not have taken effect."""


class DeadlineExceeded(DomainError):
    """The deadline passed before a response arrived. The operation may or may not have taken effect."""


class Unimplemented(DomainError):
    """The peer does not implement the method."""


class Internal(DomainError):
    """The peer failed unexpectedly. The operation may or may not have taken effect."""


KINDS = {kind.default_reason: kind for kind in DomainError.__subclasses__()}
"""Each kind is named after its gRPC status code, such as NotFound after NOT_FOUND."""

REFUSALS: tuple[type[DomainError], ...] = (
    InvalidArgument,
    FailedPrecondition,
    NotFound,
    AlreadyExists,
    OutOfRange,
    Unimplemented,
)
"""These errors mean that the peer did nothing and that a retry won't help. After any other error, a write may or may
not have taken effect."""


class IdempotencyKeyReused(InvalidArgument):
    def __init__(self) -> None:
        field, rule = "idempotency-key", "was already used for a different request"
        super().__init__(f"{field}: {rule}", violations=[FieldViolation(field, rule)])
