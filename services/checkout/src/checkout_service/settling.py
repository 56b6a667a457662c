"""Settles unfinished orders: carries out an operator's decision on how they end."""

import asyncio

from chassis.errors import FailedPrecondition, InvalidArgument
from chassis.values.fields import signed_reason
from checkout_service import saga
from checkout_service.domain import (
    CARD_NUMBER,
    NEEDS_OPERATOR,
    PLACED,
    SETTLED_DISMISSED,
    SETTLED_SHIPPED,
    Refusal,
    State,
    Transition,
)
from checkout_service.executor import Executor
from checkout_service.journal.sql import Journal
from checkout_service.ports import Entry

_ANSWER_WITHIN_SECONDS = 5.0

# If an operator dismisses an order in one of these states, it ends at once. If it was SHIPPED or DONE, its outbox items
# are deleted; `shop mail send-again` may have added one to a DONE order. If it was SETTLING, the earlier decision is
# dropped: it may be stuck because payment or shipping is down.
_AFTER_DISMISSAL = {State.SHIPPED: State.DONE, State.DONE: State.DONE, State.SETTLING: State.SETTLED}


class SettlementRefused(FailedPrecondition):
    """The order has ended, another decision is in progress, or payment or shipping records contradict this one."""


def may_decide(state: State, decision: Refusal) -> bool:
    """Return whether a worker may carry out a decision about an order in this state.

    A VOIDING order can't be settled as shipped: its charge may be voided at any moment.
    """
    is_voiding = state is State.VOIDING and decision.reason != SETTLED_SHIPPED
    return is_voiding or state in {State.CHARGING, *NEEDS_OPERATOR}


async def settle(seen: Entry, decision: Refusal, tracking_id: str, journal: Journal, executor: Executor) -> Entry:
    """Record and carry out an operator's decision. Return the order, which is still SETTLING if this takes too long.

    Raise SettlementRefused if the order's state or the records of payment or shipping rule out the decision.
    """
    before, name = seen.state, decision.reason.removeprefix("SETTLED_").lower()
    ended_as = _AFTER_DISMISSAL.get(before) if decision.reason == SETTLED_DISMISSED else None
    after, verb = (ended_as, "settled") if ended_as else (State.SETTLING, "settling")
    kept_id = seen.tracking_id if before in PLACED else tracking_id
    decided = Transition(before, after, "", kept_id, decision, step=f"{verb}_{name}", detail=decision.message)
    has_ended = before is State.DONE and not (await journal.outbox_of([seen.order_id]))[seen.order_id]
    is_allowed = not has_ended and (ended_as or may_decide(before, decision))
    recorded = is_allowed and await journal.update(seen, decided)
    entry = await journal.read(seen.order_id) or seen
    if recorded:
        executor.metrics.record_change(seen.order_id, after, decision.reason)
        if entry.state is State.SETTLING:
            run = executor.start(entry, saga.recover(entry))
            await run.result(asyncio.get_running_loop().time() + _ANSWER_WITHIN_SECONDS)
            entry = await journal.read(seen.order_id) or entry
    if not recorded or entry.state is State.NEEDS_REVIEW:
        contradiction = f": {entry.refusal.message}" if recorded and entry.refusal else ""
        message = f"an order in state {before if recorded else entry.state} cannot be settled as {name}{contradiction}"
        raise SettlementRefused(message, metadata={"order_id": seen.order_id, "state": entry.state.value})
    return entry


def decision_of(outcome: str, text: str, by: str) -> tuple[Refusal, str]:
    """Return the decision for an outcome (`refunded`, `shipped` or `dismissed`), and the tracking id, if any.

    `text` is the tracking id for `shipped`, otherwise the reason. Raise InvalidArgument if `text` or `by` is malformed.
    """
    message, is_shipped = signed_reason(by, text, outcome), outcome == "shipped"
    for field, value in (("by", by), (outcome, text)):
        # Card numbers must not be stored, but a tracking id may legitimately have eight digits in a row.
        if CARD_NUMBER.search(value) and not (is_shipped and field == outcome):
            raise InvalidArgument.field(field, "must not contain eight digits in a row")
    return Refusal("FailedPrecondition", f"SETTLED_{outcome.upper()}", message), text if is_shipped else ""
