"""Settles orders that need an operator, according to the operator's decision."""

from dataclasses import replace

from chassis.errors import FailedPrecondition, InvalidArgument, Unavailable
from chassis.values.fields import require_words
from checkout_service.commands import InDoubt
from checkout_service.domain import CARD_NUMBER, NEEDS_OPERATOR, State, Transition
from checkout_service.journal.sql import Journal
from checkout_service.metrics import OrderMetrics
from checkout_service.ports import Entry, Payment

REFUNDED = "settled_refunded"

_MAX_LENGTH = 200


class SettlementRefused(FailedPrecondition):
    """The order does not need an operator, or cannot be settled as shipped."""


async def settle(
    seen: Entry, transition: Transition, journal: Journal, payment: Payment, metrics: OrderMetrics
) -> None:
    """Settle an order. Raise SettlementRefused if the order's state forbids this, Unavailable if payment fails."""
    is_shipped = transition.after is State.SHIPPED
    allowed = seen.state in ({State.NEEDS_REVIEW} if is_shipped else NEEDS_OPERATOR)
    # Void a charge even if an operator has refunded it by hand: payment captures only one charge per cart, so
    # otherwise the cart could not be ordered again.
    if allowed and transition.step == REFUNDED and isinstance(await payment.void(seen.claim.charge_key), InDoubt):
        raise Unavailable("payment does not answer; settle the order again")
    if not allowed or not await journal.update(seen.claim, replace(transition, before=seen.state)):
        state = (await journal.read(seen.order_id) or seen).state.value
        message = f"an order in state {state} cannot be {transition.step.replace('_', ' as ')}"
        raise SettlementRefused(message, metadata={"order_id": seen.order_id, "state": state})
    if is_shipped:
        metrics.record_placed(seen.order)
    metrics.record_change(seen.order_id, transition.after, transition.step.upper())


def settlement(outcome: str, text: str, by: str) -> Transition:
    """Return the transition for an outcome: `refunded`, `shipped` or `dismissed`.

    `text`: the tracking id if `shipped`, else the reason. `by`: who decided. Raise InvalidArgument if one is invalid.
    """
    is_shipped = outcome == "shipped"
    for field, value in (("by", by), (outcome, text)):
        require_words(value, field, max_length=_MAX_LENGTH)
        # Card numbers must not be stored, but a tracking id may legitimately have eight digits in a row.
        if CARD_NUMBER.search(value) and not (is_shipped and field == outcome):
            raise InvalidArgument.field(field, "must not contain eight digits in a row")
    after, tracking_id = (State.SHIPPED, text) if is_shipped else (State.SETTLED, "")
    step, detail = f"settled_{outcome}", f"{by}: {text}"
    return Transition(State.NEEDS_REVIEW, after, tracking_id=tracking_id, step=step, detail=detail)
