"""The kinds of failure that services tell each other. `chassis.status` maps each to a gRPC status, and back.

A service subclasses a kind for each thing that can happen in its domain; the class's name is the reason that callers
branch on: `class ProductNotFound(NotFound)` reaches them as NOT_FOUND with the reason `PRODUCT_NOT_FOUND`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


class DomainError(Exception):
    """What happened, in words for the caller: never a secret, never the offending value.

    Args:
        message: a sentence for people.
        reason: UPPER_SNAKE_CASE, for programs; the class's name unless given.
        metadata: more for programs, such as an order's id.
        retry_after_seconds: when another try makes sense.
    """

    default_reason: ClassVar[str] = "DOMAIN_ERROR"

    def __init_subclass__(cls) -> None:
        cls.default_reason = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class FieldViolation:
    """A field's path in the request, such as `item.quantity`, and the rule that it breaks."""

    field: str
    rule: str


class InvalidArgument(DomainError):
    """The request breaks a rule whatever the state of the system. Reports each broken field."""

    def __init__(self, *violations: FieldViolation, reason: str | None = None, message: str | None = None) -> None:
        self.violations = violations
        super().__init__(message or "; ".join(f"{broken.field}: {broken.rule}" for broken in violations), reason=reason)

    @classmethod
    def field(cls, field: str, rule: str) -> "InvalidArgument":
        """One field that breaks one rule."""
        return cls(FieldViolation(field, rule))


class NotFound(DomainError):
    """What the request names does not exist."""


class AlreadyExists(DomainError):
    """What the request would create exists."""


class FailedPrecondition(DomainError):
    """The request is well-formed but the system's state forbids it; repeating it won't help."""


class Aborted(DomainError):
    """The request met another one; repeating the whole of it may help."""


class OutOfRange(DomainError):
    """A result is beyond what its type can hold."""


class ResourceExhausted(DomainError):
    """The service is at its limit and did nothing."""


class Unavailable(DomainError):
    """A store or peer can't be reached; repeating the request may help."""


class DeadlineExceeded(DomainError):
    """No answer in time: the peer may or may not have done what it was asked."""


class Unimplemented(DomainError):
    """The peer does not know the method."""


class Internal(DomainError):
    """The peer failed unexpectedly; whether the operation took effect is unknown."""


REFUSALS: tuple[type[DomainError], ...] = (
    InvalidArgument,
    FailedPrecondition,
    NotFound,
    AlreadyExists,
    OutOfRange,
    Unimplemented,
)
"""Kinds by which a peer refuses for good: it did nothing, and a retry will not help. After any other kind the outcome
of a write is unknown."""


class IdempotencyKeyReused(InvalidArgument):
    """The idempotency key was already used for a different request."""

    def __init__(self) -> None:
        super().__init__(FieldViolation("idempotency-key", "was already used for a different request"))
