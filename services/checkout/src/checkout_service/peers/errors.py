"""Translates peers' errors into errors for callers and refusals for the journal."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from chassis import errors
from chassis.errors import REFUSALS, DomainError, FieldViolation, InvalidArgument
from checkout_service.commands import InDoubt, Refused
from checkout_service.domain import Refusal

# If a read fails with one of these errors, the peer has refused this cart or address. Any other error, even
# AlreadyExists or Unimplemented, means that the peer is unavailable.
READ_REFUSALS = (InvalidArgument, errors.FailedPrecondition, errors.NotFound, errors.OutOfRange)

_NUMBER = re.compile(r"\d(?:[\W_]?\d){2,}")


class DependencyUnavailable(errors.Unavailable):
    """A peer failed while the cart or the prices were being read. No order was placed."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} is not available", metadata={"peer": peer}, retry_after_seconds=1.0)


@contextmanager
def reading(peer: str, *refusals: type[DomainError]) -> Iterator[None]:
    """Turn errors raised while reading from a peer into DependencyUnavailable, except PeerBroken and `refusals`."""
    try:
        yield
    except DomainError as error:
        if isinstance(error, (errors.PeerBroken, *refusals)):
            raise
        raise DependencyUnavailable(peer) from error


def refused_or_in_doubt(error: DomainError) -> Refused | InDoubt:
    """Convert a peer's error to an outcome. A refusal keeps the peer's code and reason."""
    # UNIMPLEMENTED may not come from the peer: a proxy without a route also returns it.
    if not isinstance(error, REFUSALS) or isinstance(error, errors.Unimplemented):
        return InDoubt(error.reason)
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind in REFUSALS)
    # The journal must never hold a card number, and a peer's message may quote one.
    masked = tuple(
        FieldViolation(_mask_numbers(broken.field), _mask_numbers(broken.rule)) for broken in error.violations
    )
    return Refused(Refusal(kind, error.reason, _mask_numbers(error.message), masked))


def _mask_numbers(text: str) -> str:
    return _NUMBER.sub("[number]", text)
