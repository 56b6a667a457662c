"""Sagas: generators that yield the steps of an order and do no I/O themselves.

A saga yields commands and receives their results, so tests can stop a saga at any step, repeat and delay its calls, run
two workers on one order, and make the journal lose commits. Three mechanisms keep an order safe:
1. Payment and shipping act only once per idempotency key, and a repeated request uses the same keys.
2. Once a key is fenced, no charge or shipment under it can succeed.
3. The journal rejects updates from workers that no longer hold the order. Leases only avoid duplicate work.

An attempt is one charge and one shipment, each with its own key. The next attempt begins only once the current charge
is declined, voided or fenced, so at most one attempt stays charged. If the journal has lost attempts, a worker finds
them again by asking payment about each attempt in turn. Until a refused order ends, no worker charges its card.
The order ends once payment fences an attempt that it has no record of: no later attempt can then have been charged.
"""

from collections.abc import Generator
from dataclasses import replace
from enum import Enum, auto
from typing import Any, TypeAlias

from checkout_service.commands import (
    Charge,
    Charged,
    ChargeOutcome,
    Command,
    Fenced,
    Forgotten,
    InDoubt,
    Insert,
    KeyReused,
    R,
    Refused,
    Resolve,
    ResolveShipment,
    Restore,
    Send,
    Ship,
    Shipped,
    StartRemoval,
    Unsupported,
    Update,
    Void,
    Voided,
    VoidOutcome,
    Wait,
)
from checkout_service.domain import RESTORABLE, SETTLED_REFUNDED, SETTLED_SHIPPED, Refusal, State, Transition
from checkout_service.ports import Entry


class SagaResult(Enum):
    """How a run of a saga ended."""

    ENDED = auto()
    """The order has an outcome to return to its callers."""
    SUPERSEDED = auto()
    """Another worker holds the order, another order has the same scope or cart, or the journal has lost the order."""
    UNFINISHED = auto()
    """The order is still open; recovery will continue it."""


Saga: TypeAlias = Generator[Command[Any], Any, SagaResult]

# A worker starts or resolves at most this many attempts before it leaves the order to the next worker.
MAX_ATTEMPTS_OF_RUN = 16

CHARGE_VOIDED = Refusal("FailedPrecondition", "CHARGE_VOIDED", "the charge of this order was voided")
IN_DOUBT = Refusal("FailedPrecondition", "LEDGER_UNAVAILABLE", "payment cannot say whether it charged the card")
SHIPMENT_IN_DOUBT = Refusal("FailedPrecondition", "MANIFEST_UNAVAILABLE", "shipping cannot say whether it shipped it")
FORGOTTEN = Refusal("FailedPrecondition", "SHIPMENT_FORGOTTEN", "charged before shipping's oldest records")
OTHER_CONTENT = Refusal("FailedPrecondition", "IDEMPOTENCY_KEY_REUSED", "charged or shipped before, with other content")


def place() -> Saga:
    """Record a new order, charge its card and ship it."""
    if not (yield Insert()):
        return SagaResult.SUPERSEDED
    return (yield from charge(resumed=False))


def take_over(entry: Entry) -> Saga:
    """Continue a CHARGING order for a caller who has sent the card again. If the order was refused, don't charge."""
    return resolve(entry.refused_as, entry.refusal) if entry.refused_as else charge(resumed=True)


def recover(entry: Entry) -> Saga:
    """Continue an open order without its card, which the journal does not store."""
    if entry.state is State.SETTLING and entry.refusal is not None:
        return settle(entry.refusal, entry.tracking_id)
    if entry.state is State.VOIDING:
        return void_charge(entry.refusal or CHARGE_VOIDED)
    return resolve(entry.refused_as or State.ABANDONED, entry.refusal)


def charge(*, resumed: bool) -> Saga:
    """Charge and ship a CHARGING order. If `resumed`, an earlier worker may already have charged or shipped it."""
    for _ in range(MAX_ATTEMPTS_OF_RUN):
        outcome, tries = yield from _until_certain(Charge(retry=resumed), again=Charge(retry=True))
        certain = not resumed and tries == 0
        match outcome:
            case Charged():
                return (yield from _ship(outcome, resumed=resumed))
            case Refused(refusal):
                # An earlier try whose outcome is unknown may still succeed, so only a fence makes the refusal final.
                return (yield from resolve(State.DECLINED, refusal, certain=certain))
            case Voided():
                return (yield from resolve(State.VOIDED, CHARGE_VOIDED, certain=certain))
            case KeyReused():
                # The journal has lost an order that used the key for other content. Check whether it was charged.
                outcome, _ = yield from _until_certain(Resolve())
                if isinstance(outcome, Charged | KeyReused):
                    return (yield from _displace(outcome))
        if isinstance(outcome, InDoubt | Unsupported):
            break
        # No charge under this attempt's key can succeed anymore, so charge the card in the next attempt.
        if not (yield from _update(Transition(State.CHARGING, State.CHARGING))):
            return SagaResult.SUPERSEDED
    return SagaResult.UNFINISHED


def resolve(after: State = State.ABANDONED, refusal: Refusal | None = None, *, certain: bool = False) -> Saga:
    """Continue a CHARGING order without charging its card: ship it if it was charged, otherwise end it as `after`.

    Don't end the order at a decline, a voided charge or an old fence: the journal may have lost a later attempt that
    was charged. Go on to the next attempt, and end the order at the first one that payment has no record of. If payment
    can't set fences, end the order only if the refusal is `certain` (no other try can have charged the card), and
    otherwise leave the order to an operator.
    """
    for _ in range(MAX_ATTEMPTS_OF_RUN):
        outcome, _ = yield from _until_certain(Resolve())
        match outcome:
            case Charged():
                return (yield from _ship(outcome, resumed=True))
            case KeyReused():
                return (yield from _displace(outcome))
            case Fenced(existing=False):
                return (yield from _end(State.CHARGING, after, refusal))
            case Unsupported():  # payment doesn't offer the internal ledger
                return (yield from _end(State.CHARGING, after if certain else State.NEEDS_REVIEW, refusal or IN_DOUBT))
            case InDoubt():
                break
            case Refused(declined) if refusal is None:
                after, refusal = State.DECLINED, declined
            case Voided() if refusal is None:
                after, refusal = State.VOIDED, CHARGE_VOIDED
        # Record the refusal together with the next attempt, so that a worker that takes over doesn't charge the card.
        pending = after if refusal else None
        next_attempt = Transition(State.CHARGING, State.CHARGING, refusal=refusal, refused_as=pending)
        if not (yield from _update(next_attempt)):
            return SagaResult.SUPERSEDED
    return SagaResult.UNFINISHED


def void_charge(refusal: Refusal) -> Saga:
    """Void the charge of a VOIDING order, which was not shipped and can no longer be shipped."""
    outcome: ChargeOutcome | VoidOutcome = (yield from _until_certain(Void()))[0]
    if isinstance(outcome, Refused):
        # An earlier call may have voided the charge although its response was lost, so ask payment what happened.
        outcome, _ = yield from _until_certain(Resolve())
    match outcome:
        case Voided():
            # The journal may have lost later attempts that were charged, so check for them before ending the order.
            next_attempt = Transition(State.VOIDING, State.CHARGING, refusal=refusal, refused_as=State.VOIDED)
            if not (yield from _update(next_attempt)):
                return SagaResult.SUPERSEDED
            return (yield from resolve(State.VOIDED, refusal))
        case InDoubt():
            return SagaResult.UNFINISHED
        case _:
            return (yield from _end(State.VOIDING, State.NEEDS_REFUND, refusal))


def settle(decision: Refusal, tracking_id: str) -> Saga:
    """Carry out an operator's decision about a SETTLING order. `tracking_id` is the one that the operator gave, if any.

    First, fence the charge and the shipment unless they are on record, so that they can't happen later. If a peer's
    records contradict the decision, change the order to NEEDS_REVIEW. Peers without internal APIs can't contradict it.
    """
    charge = yield from _resolve_last_attempt(decision, tracking_id)
    charged_at = charge.charged_at if isinstance(charge, Charged | KeyReused) else 0.0
    shipment, _ = yield from _until_certain(ResolveShipment(charged_at))
    if isinstance(charge, InDoubt) or isinstance(shipment, InDoubt):
        return SagaResult.UNFINISHED
    shipped_as = shipment.tracking_id if isinstance(shipment, Shipped) else ""
    after, contradiction = State.SETTLED, ""
    if decision.reason == SETTLED_SHIPPED:
        after = State.SHIPPED
        if isinstance(charge, Fenced | Voided | Refused):
            contradiction = "payment has no charge"
        elif shipped_as not in {"", tracking_id}:
            contradiction = f"shipping has sent {shipped_as}"
    elif decision.reason == SETTLED_REFUNDED:
        if shipped_as:
            contradiction = f"shipping has sent {shipped_as}"
        # Void the charge even if an operator has refunded it manually: payment allows one captured charge per cart, so
        # this charge would prevent the cart from being ordered again.
        elif isinstance((yield from _until_certain(Void()))[0], InDoubt):
            return SagaResult.UNFINISHED
    if contradiction:
        after, tracking_id = State.NEEDS_REVIEW, ""
        decision = replace(decision, reason="SETTLEMENT_REFUSED", message=contradiction)
    step, detail = decision.reason.lower(), decision.message
    updated = yield Update(Transition(State.SETTLING, after, "", tracking_id, decision, step=step, detail=detail))
    return SagaResult.ENDED if updated else SagaResult.SUPERSEDED


def _resolve_last_attempt(decision: Refusal, tracking_id: str) -> Generator[Command[Any], Any, ChargeOutcome]:
    """Resolve a SETTLING order's attempts, even any that the journal has lost. Return the last attempt's outcome."""
    for _ in range(MAX_ATTEMPTS_OF_RUN):
        outcome, _ = yield from _until_certain(Resolve())
        if isinstance(outcome, Charged | KeyReused | Unsupported | InDoubt) or outcome == Fenced(existing=False):
            return outcome
        # Even without its charge, an attempt may have shipped.
        shipment, _ = yield from _until_certain(ResolveShipment(0.0))
        if isinstance(shipment, Shipped | InDoubt):
            return outcome if isinstance(shipment, Shipped) else shipment
        if not (yield from _update(Transition(State.SETTLING, State.SETTLING, "", tracking_id, decision))):
            break
    return InDoubt("")


def _ship(charged: Charged, *, resumed: bool) -> Saga:
    at = charged.charged_at
    outcome, _ = yield from _until_certain(Ship(at, retry=resumed), again=Ship(at, retry=True))
    match outcome:
        case Shipped(tracking_id):
            return (yield from _finish(charged, tracking_id))
        case Refused(refusal):
            return (yield from _resolve_refused_shipment(charged, refusal))
        case KeyReused():
            return (yield from _displace(charged))
        case Forgotten() | Unsupported():  # Unsupported: shipping doesn't offer the internal manifest
            review = FORGOTTEN if isinstance(outcome, Forgotten) else SHIPMENT_IN_DOUBT
            return (yield from _end(State.CHARGING, State.NEEDS_REVIEW, review, charged.transaction_id))
        case Fenced():
            return (yield from _void(charged, CHARGE_VOIDED))
        case InDoubt():
            return SagaResult.UNFINISHED


def _resolve_refused_shipment(charged: Charged, refusal: Refusal) -> Saga:
    """Void the charge of an order that shipping refused, once no earlier call can still ship it."""
    outcome, _ = yield from _until_certain(ResolveShipment(charged.charged_at))
    match outcome:
        case Shipped(tracking_id):
            return (yield from _finish(charged, tracking_id))
        case Fenced() | Unsupported():  # Unsupported: without fences, we never retry, so no other try can ship
            return (yield from _void(charged, refusal))
        case InDoubt():
            return SagaResult.UNFINISHED
        case _:  # a parcel may be on its way, so keep the charge
            return (yield from _end(State.CHARGING, State.NEEDS_REVIEW, refusal, charged.transaction_id))


def _displace(charged: Charged | KeyReused) -> Saga:
    """Void the charge, because a key was used for other content. If a parcel may exist, an operator must decide."""
    outcome, _ = yield from _until_certain(ResolveShipment(charged.charged_at))
    match outcome:
        case Fenced():
            return (yield from _void(charged, CHARGE_VOIDED))
        case InDoubt():
            return SagaResult.UNFINISHED
        case _:
            return (yield from _end(State.CHARGING, State.NEEDS_REVIEW, OTHER_CONTENT, charged.transaction_id))


def _void(charged: Charged | KeyReused, refusal: Refusal) -> Saga:
    if not (yield from _update(Transition(State.CHARGING, State.VOIDING, charged.transaction_id, refusal=refusal))):
        return SagaResult.SUPERSEDED
    return (yield from void_charge(refusal))


def _finish(charged: Charged, tracking_id: str) -> Saga:
    # The caller waits until the cart and the journal are updated, so update both at the same time. This is safe: a
    # shipped order stays shipped, and repeating the removal after a crash has no further effect.
    yield StartRemoval()
    if not (yield from _update(Transition(State.CHARGING, State.SHIPPED, charged.transaction_id, tracking_id))):
        return SagaResult.SUPERSEDED
    yield Send()
    return SagaResult.ENDED


def _end(before: State, after: State, refusal: Refusal | None = None, transaction_id: str = "") -> Saga:
    updated = yield from _update(Transition(before, after, transaction_id, refusal=refusal))
    return SagaResult.ENDED if updated else SagaResult.SUPERSEDED


def _update(transition: Transition) -> Generator[Command[Any], Any, bool]:
    """Record a transition. If the journal has lost the order, restore it first if safe. Return False if rejected."""
    updated: bool = yield Update(transition)
    # Restore the order only if this attempt was charged: no attempt follows one that is charged, so it is the last.
    if not updated and transition.after in RESTORABLE and (yield Restore()):
        updated = yield Update(transition)
    return updated


def _until_certain(
    command: Command[R], *, again: Command[R] | None = None
) -> Generator[Command[Any], Any, tuple[R, int]]:
    """Repeat a command until its outcome is certain or the worker must stop trying.

    Return the last outcome and the number of earlier tries, whose outcomes are unknown. If `again` is given, every try
    after the first yields `again` instead.
    """
    tries = 0
    while True:
        outcome: R = yield command
        if not isinstance(outcome, InDoubt) or not (yield Wait(tries, outcome.reason)):
            return outcome, tries
        command, tries = again or command, tries + 1
