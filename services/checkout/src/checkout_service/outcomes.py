"""How a request to place an order can end, and what it gets of an order that the journal already has."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from chassis.errors import DomainError, InvalidArgument
from checkout_service.domain import RELEASED_CART, State
from checkout_service.ports import Entry
from checkout_service.requests import OrderRequest, scope_of_key


@dataclass(frozen=True, slots=True)
class Placed:
    """This call has placed the order."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Replayed:
    """An earlier or concurrent call has placed the order."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Refused:
    """The caller gets this error. This call has charged no card."""

    error: DomainError


@dataclass(frozen=True, slots=True)
class BeginAgain:
    """The order before this one has ended: what it has left in the cart is read anew, and ordered."""


Outcome: TypeAlias = Placed | Replayed | Refused | BeginAgain


class Decision(Enum):
    """What follows from the state of an existing order."""

    WAIT = auto()
    """It has no outcome yet: look again when it has changed."""
    REPLAY = auto()
    REFUSE = auto()
    """Repeat the order's own error."""
    REFUSE_KEY = auto()
    """Another request has used the key."""
    REFUSE_CART = auto()
    """The cart belongs to the order of another request."""
    SHARE_CART = auto()
    """Another request has bought some of the cart, or all of it: see what is left."""
    BEGIN_AGAIN = auto()


_DECISIONS = {
    # the order's state: (of the same request, of another request for its cart)
    State.CHARGING: (Decision.WAIT, Decision.WAIT),
    State.VOIDING: (Decision.WAIT, Decision.WAIT),
    State.SHIPPED: (Decision.REPLAY, Decision.SHARE_CART),
    State.DONE: (Decision.REPLAY, Decision.SHARE_CART),
    State.DECLINED: (Decision.REFUSE, Decision.BEGIN_AGAIN),
    State.VOIDED: (Decision.REFUSE, Decision.BEGIN_AGAIN),
    State.ABANDONED: (Decision.BEGIN_AGAIN, Decision.BEGIN_AGAIN),
    State.NEEDS_REFUND: (Decision.REFUSE, Decision.REFUSE_CART),
    State.NEEDS_REVIEW: (Decision.REFUSE, Decision.REFUSE_CART),
    State.SETTLED: (Decision.REFUSE, Decision.REFUSE),
}


def decide(existing: Entry, request: OrderRequest, *, is_own: bool) -> Decision:
    """Return what a request gets of an order that has its key or its cart. `is_own`: the request began it."""
    of_same_request, of_other_request = _DECISIONS[existing.state]
    if is_own:
        return of_same_request
    is_of_key = request.key is not None and existing.scope == scope_of_key(request)
    return Decision.REFUSE_KEY if is_of_key else of_other_request


def may_begin_again(existing: Entry, request: OrderRequest) -> bool:
    """Return whether the order of the request's scope has ended without effect, and this is its next attempt.

    Under a key a refusal is final, but of malformed fields, which the caller corrects, payment has recorded none.
    """
    if request.key is None:
        return existing.state in RELEASED_CART
    malformed = existing.refusal is not None and existing.refusal.kind == InvalidArgument.__name__
    is_same = existing.state is State.ABANDONED and request.began(existing.fingerprint)
    return is_same or (existing.state is State.DECLINED and malformed)
