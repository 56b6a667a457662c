"""Errors that callers receive instead of an order."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chassis.errors import REFUSALS, Aborted, DomainError, FailedPrecondition, Unavailable
from chassis.values.money import Money
from checkout_service.domain import Refusal, State
from checkout_service.ports import Entry, JournalUnavailable

RETRY_SECONDS = 1.0

_KINDS: dict[str, type[DomainError]] = {kind.__name__: kind for kind in REFUSALS}
_UNSPECIFIED = Refusal("FailedPrecondition", "ORDER_REFUSED", "the order was refused")


def _repeat(order_id: str) -> dict[str, Any]:
    return {"metadata": {"order_id": order_id}, "retry_after_seconds": RETRY_SECONDS}


class OrderInProgress(Unavailable):
    """The order is in progress and will complete in the background. Repeating the request returns its outcome."""

    def __init__(self, order_id: str) -> None:
        super().__init__("the order is in progress; repeat the request to learn its outcome", **_repeat(order_id))


class OrderInFlight(Aborted):
    """Another call is placing this order, or an order for this cart, and has no outcome yet."""

    def __init__(self, order_id: str) -> None:
        super().__init__("another call is placing this order or cart; repeat the request", **_repeat(order_id))


class CartOrdered(FailedPrecondition):
    """A different request has already ordered this cart."""

    def __init__(self, order_id: str) -> None:
        super().__init__("this cart was ordered already, by a different request", metadata={"order_id": order_id})


class OrderNeedsReview(FailedPrecondition):
    """The card may have been charged and a parcel shipped, perhaps incorrectly, so an operator must decide."""


class OrderNeedsRefund(FailedPrecondition):
    """The card was charged, but the order can't be shipped, and payment could not void the charge."""


class OrderSettled(FailedPrecondition):
    """An operator closed the order. Without an idempotency key, the cart can't be ordered again until it changes."""


class TotalChanged(FailedPrecondition):
    """The order's total differs from the total that the customer was shown. No order was placed."""

    def __init__(self, total: Money) -> None:
        super().__init__(f"the total is now {total}", metadata={"total": str(total)})


class QuotesTooSlow(Unavailable):
    """Reading the cart and the prices took too long. No order was placed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_seconds=RETRY_SECONDS)


@contextmanager
def already_recorded(order_id: str) -> Iterator[None]:
    """Turn JournalUnavailable into OrderInProgress: the order is recorded, but the journal can't be read right now."""
    try:
        yield
    except JournalUnavailable as error:
        raise OrderInProgress(order_id) from error


def error_of(entry: Entry) -> DomainError:
    """Return the error to raise for a refused order, with the code and reason from the peer that refused."""
    refusal, metadata = entry.refusal or _UNSPECIFIED, {"order_id": entry.order_id}
    if entry.state is State.NEEDS_REVIEW or entry.unreadable:
        message = "the card may have been charged; an operator must settle the order; do not order again"
        return OrderNeedsReview(message, metadata=metadata)
    if entry.state is State.NEEDS_REFUND:
        message = "the order can't be shipped; the card was charged and must be refunded by an operator"
        return OrderNeedsRefund(message, metadata=metadata)
    if entry.state is State.SETTLED:
        return OrderSettled("an operator has closed this order", metadata=metadata)
    if entry.state is not State.DECLINED:
        # Don't pass on shipping's violations, which name fields that the caller's request does not have.
        return FailedPrecondition(refusal.message, reason=refusal.reason, metadata=metadata)
    kind, violations = _KINDS[refusal.kind], refusal.violations
    return kind(refusal.message, reason=refusal.reason, metadata=metadata, violations=violations)
