"""Translates peers' errors: of the reads before an order, and refusals, as the journal stores them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from chassis.errors import (
    REFUSALS,
    DomainError,
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PeerBroken,
    Unavailable,
    Unimplemented,
)
from checkout_service.commands import InDoubt, Refused
from checkout_service.domain import Refusal

# Errors by which a peer refuses this cart or address. A peer that answers a read with any other, even with
# AlreadyExists or Unimplemented, counts as unavailable.
READ_REFUSALS = (InvalidArgument, FailedPrecondition, NotFound, OutOfRange)

_NUMBER = re.compile(r"\d(?:[\W_]?\d){2,}")


class DependencyUnavailable(Unavailable):
    """A peer fails before the order is begun. Nothing was done."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} is not available", metadata={"peer": peer}, retry_after_seconds=1.0)


@contextmanager
def reading(peer: str, *refusals: type[DomainError]) -> Iterator[None]:
    """Raise DependencyUnavailable for any error of a read but PeerBroken and the given refusals."""
    try:
        yield
    except DomainError as error:
        if isinstance(error, (PeerBroken, *refusals)):
            raise
        raise DependencyUnavailable(peer) from error


def refusal_from_error(error: DomainError) -> Refusal:
    """Convert one of the REFUSALS, with the peer's own code and reason."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind in REFUSALS)
    violations = error.violations if isinstance(error, InvalidArgument) else ()
    # The journal must never hold a card number, and a peer's message may quote it.
    masked = tuple(FieldViolation(_mask_numbers(broken.field), _mask_numbers(broken.rule)) for broken in violations)
    return Refusal(kind, error.reason, _mask_numbers(error.message), masked)


def refused_or_in_doubt(error: DomainError) -> Refused | InDoubt:
    # UNIMPLEMENTED is not a decision of the peer: a proxy without a route returns it, too.
    if isinstance(error, REFUSALS) and not isinstance(error, Unimplemented):
        return Refused(refusal_from_error(error))
    return InDoubt(error.reason)


def _mask_numbers(text: str) -> str:
    return _NUMBER.sub("[number]", text)
