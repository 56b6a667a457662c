"""What a caller gets instead of an order."""

from chassis.errors import REFUSALS, Aborted, DomainError, FailedPrecondition, InvalidArgument, Unavailable
from checkout_service.domain import Refusal, State
from checkout_service.journal import Entry

RETRY_SECONDS = 1.0

_KINDS: dict[str, type[DomainError]] = {kind.__name__: kind for kind in REFUSALS}
_UNTOLD = Refusal("FailedPrecondition", "ORDER_REFUSED", "the order was refused")


class OrderInProgress(Unavailable):
    """The order is begun and will be finished without its caller; repeating the request tells how it ended."""

    def __init__(self, order_id: str) -> None:
        super().__init__("the order is in progress", metadata={"order_id": order_id}, retry_after_seconds=RETRY_SECONDS)


class OrderInFlight(Aborted):
    """Another call is placing this order, or this cart, and has no answer yet."""

    def __init__(self, order_id: str) -> None:
        super().__init__(
            "the order is being placed by another call",
            metadata={"order_id": order_id},
            retry_after_seconds=RETRY_SECONDS,
        )


class CartOrdered(FailedPrecondition):
    """This very cart was ordered already, by another request."""


class QuotesTooSlow(Unavailable):
    """What an order needs to know was not told in time. Nothing was done."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_seconds=RETRY_SECONDS)


def error_of(entry: Entry) -> DomainError:
    """The error for an order that was refused: the peer's own code and reason, the same at each repetition."""
    refusal = entry.refusal or _UNTOLD
    # What shipping says of its own request would mislead the caller about theirs.
    if entry.state is State.DECLINED and refusal.kind == InvalidArgument.__name__:
        return InvalidArgument(*refusal.violations, reason=refusal.reason, message=refusal.message)
    kind = _KINDS["FailedPrecondition"] if entry.state is not State.DECLINED else _KINDS[refusal.kind]
    return kind(refusal.message, reason=refusal.reason, metadata={"order_id": entry.order_id})
