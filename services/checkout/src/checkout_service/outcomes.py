"""How a request that raises no error can end, and what to do if its key or cart already has an order."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from chassis.errors import InvalidArgument
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
class BeginAgain:
    """The earlier order has ended: read the cart again, and order what is left in it."""


Outcome: TypeAlias = Placed | Replayed | BeginAgain


class Decision(Enum):
    """What to do with a request whose key or cart already has an order."""

    WAIT = auto()
    """The order has no outcome yet: decide again once the order has changed."""
    REPLAY = auto()
    REFUSE = auto()
    """Raise the order's error again."""
    REFUSE_KEY = auto()
    """A different request has used the key."""
    REFUSE_CART = auto()
    """The cart belongs to another request's order, which an operator must close first."""
    SHARE_CART = auto()
    """Another request has bought some or all of the cart: find out what is left."""
    BEGIN_AGAIN = auto()


_DECISIONS = {
    # order state: (decision if this request started the order, decision if another request for its cart did)
    State.CHARGING: (Decision.WAIT, Decision.WAIT),
    State.VOIDING: (Decision.WAIT, Decision.WAIT),
    State.SETTLING: (Decision.WAIT, Decision.WAIT),
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
    """Decide how to answer a request if its key or cart already has this order, which may be its own."""
    of_same_request, of_other_request = _DECISIONS[State.NEEDS_REVIEW if existing.unreadable else existing.state]
    if is_own:
        return of_same_request
    is_of_key = request.key is not None and existing.scope == scope_of_key(request)
    return Decision.REFUSE_KEY if is_of_key else of_other_request


def may_begin_again(existing: Entry, request: OrderRequest) -> bool:
    """Return whether the order has ended without effect, so that this request may begin the order's next attempt.

    With an idempotency key, a refusal is final unless payment found a field malformed: payment does not record such
    refusals, and the caller can correct the field.
    """
    if request.key is None:
        return existing.state in RELEASED_CART
    malformed = existing.refusal is not None and existing.refusal.kind == InvalidArgument.__name__
    is_same = existing.state is State.ABANDONED and request.began(existing.fingerprint)
    return is_same or (existing.state is State.DECLINED and malformed)
