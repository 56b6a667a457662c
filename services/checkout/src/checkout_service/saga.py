"""The steps of an order as generators without I/O.

A saga yields commands and is sent their results. A test can therefore stop it at any step, repeat and delay its calls,
and run two workers on one order. Three mechanisms keep an order safe whatever happens to a worker: keys, under which a
peer acts once; the fence, after which an old charge cannot succeed; and the epoch, without which an update is rejected.
The lease only avoids duplicate work.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeAlias, TypeVar

from checkout_service.domain import Refusal, State, Transition
from checkout_service.outcomes import (
    Charged,
    ChargeOutcome,
    Fenced,
    InDoubt,
    Refused,
    Released,
    ShipOutcome,
    Shipped,
    Unsupported,
    VoidOutcome,
)

R = TypeVar("R")


class Command(Generic[R]):
    """A step that the executor performs; R is its result."""

    __slots__ = ()


class Insert(Command[bool]):
    """Record the order as CHARGING before it has any effect. False: its scope already has an order."""


@dataclass(frozen=True, slots=True)
class Charge(Command[ChargeOutcome]):
    """Charge the card under the attempt's key; `retry` after an attempt that was left in doubt."""

    retry: bool


class Resolve(Command[ChargeOutcome]):
    """Resolve the attempt's charge, or fence its key."""


class Ship(Command[ShipOutcome]):
    """Ship under the order's key."""


class Void(Command[VoidOutcome]):
    """Release the attempt's charge."""


@dataclass(frozen=True, slots=True)
class Update(Command[bool]):
    """Record a transition. False: the order is in another state, or another worker has taken it over."""

    transition: Transition


class Send(Command[None]):
    """Try the order's outbox at once; failed items remain in it."""


@dataclass(frozen=True, slots=True)
class Wait(Command[bool]):
    """Back off before the next try. False: stop trying and leave the order to recovery."""

    tries: int
    reason: str


class SagaResult(Enum):
    """How a worker's part in an order ended."""

    SETTLED = auto()
    """The order reached a state in which callers get their answer."""
    SUPERSEDED = auto()
    """Another worker has the order."""
    UNFINISHED = auto()
    """The order is still open; recovery continues it."""


Saga: TypeAlias = Generator[Command[Any], Any, SagaResult]

RELEASED = Refusal("FailedPrecondition", "CHARGE_VOIDED", "the charge of this order was voided")


def perform(command: Command[R]) -> Generator[Command[Any], Any, R]:
    """Yield a command and return its result, typed."""
    result: R = yield command
    return result


def place() -> Saga:
    """Place a new order, with its card."""
    if not (yield from perform(Insert())):
        return SagaResult.SUPERSEDED
    return (yield from charge(doubtful=False))


def charge(*, doubtful: bool) -> Saga:
    """Continue an order in CHARGING, with its card. `doubtful`: an earlier charge of the attempt may still arrive."""
    tries = 0
    while True:
        outcome = yield from perform(Charge(retry=tries > 0))
        match outcome:
            case Charged(transaction_id):
                return (yield from _ship(transaction_id))
            case Refused(refusal) if doubtful:
                # An earlier charge may still arrive and succeed, so a refusal is final only behind the fence.
                return (yield from resolve(refusal))
            case Refused(refusal):
                return (yield from _end(State.CHARGING, State.DECLINED, refusal))
            case Fenced():
                return (yield from _end(State.CHARGING, State.ABANDONED))
            case Released():
                return (yield from _end(State.CHARGING, State.VOIDED, RELEASED))
            case InDoubt(reason) if (yield from perform(Wait(tries, reason))):
                doubtful = True
                tries += 1
            case InDoubt() | Unsupported():
                return SagaResult.UNFINISHED


def resolve(refusal: Refusal | None = None) -> Saga:
    """Continue an order in CHARGING without its card, or with a card that was refused after a charge in doubt."""
    tries = 0
    while True:
        outcome = yield from perform(Resolve())
        match outcome:
            case Charged(transaction_id):
                return (yield from _ship(transaction_id))
            case InDoubt(reason) if (yield from perform(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return SagaResult.UNFINISHED
            case Unsupported() if refusal is None:
                return SagaResult.UNFINISHED
            case _:
                return (yield from _end(State.CHARGING, *_resolved_state(outcome, refusal)))


def _resolved_state(
    outcome: Refused | Fenced | Released | Unsupported, refusal: Refusal | None
) -> tuple[State, Refusal | None]:
    match outcome:
        case Released():
            return State.VOIDED, RELEASED
        case Refused(declined):
            return State.DECLINED, refusal or declined
        case Fenced() | Unsupported():
            return (State.DECLINED, refusal) if refusal else (State.ABANDONED, None)


def release() -> Saga:
    """Continue an order in VOIDING, which shipping has refused."""
    tries = 0
    while True:
        outcome = yield from perform(Void())
        match outcome:
            case Released():
                return (yield from _end(State.VOIDING, State.VOIDED))
            case Refused() | Unsupported():
                return (yield from _end(State.VOIDING, State.NEEDS_REFUND))
            case InDoubt(reason) if (yield from perform(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return SagaResult.UNFINISHED


def _ship(transaction_id: str) -> Saga:
    tries = 0
    while True:
        outcome = yield from perform(Ship())
        match outcome:
            case Shipped(tracking_id):
                return (yield from _finish(transaction_id, tracking_id))
            case Refused(refusal):
                voiding = Transition(State.CHARGING, State.VOIDING, transaction_id, refusal=refusal)
                if not (yield from perform(Update(voiding))):
                    return SagaResult.SUPERSEDED
                return (yield from release())
            case InDoubt(reason) if (yield from perform(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return SagaResult.UNFINISHED


def _finish(transaction_id: str, tracking_id: str) -> Saga:
    shipped = Transition(State.CHARGING, State.SHIPPED, transaction_id, tracking_id)
    if not (yield from perform(Update(shipped))):
        return SagaResult.SUPERSEDED
    yield from perform(Send())
    return SagaResult.SETTLED


def _end(before: State, after: State, refusal: Refusal | None = None) -> Saga:
    updated = yield from perform(Update(Transition(before, after, refusal=refusal)))
    return SagaResult.SETTLED if updated else SagaResult.SUPERSEDED
