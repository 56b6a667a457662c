"""Errors of the reads that precede an order."""

from chassis.errors import FailedPrecondition, InvalidArgument, NotFound, OutOfRange, Unavailable

RETRY_SECONDS = 1.0

READ_REFUSALS = (InvalidArgument, FailedPrecondition, NotFound, OutOfRange)
"""Kinds by which a peer refuses this cart or address. Unlike errors.REFUSALS they exclude AlreadyExists and
Unimplemented, which are no decision about a read: a peer that returns them counts as unavailable."""


class DependencyUnavailable(Unavailable):
    """A peer fails before the order is begun. Nothing was done."""

    def __init__(self, peer: str) -> None:
        super().__init__(f"{peer} is not available", metadata={"peer": peer}, retry_after_seconds=RETRY_SECONDS)
