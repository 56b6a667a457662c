"""What happens to an order, step by step, without doing any of it.

A saga is a generator: it yields commands and is sent what they led to, so that a test can stop it anywhere, repeat and
delay what it asks for, and run two of them on one order. Three things keep an order safe whatever happens to a worker:
the keys, under which peers do a thing once; the fence, after which an old charge can't succeed; and the epoch, which
makes every update of a worker that lost the order fail. The lease only saves work.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeAlias, TypeVar

from checkout_service.domain import Refusal, State

R = TypeVar("R")


class Command(Generic[R]):
    """Something to do; R is what it leads to."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Charged:
    """The card was charged under the key, now or earlier."""

    transaction_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A definite no: the peer did nothing and won't."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Fenced:
    """The key was given up: no charge under it has succeeded or can."""


@dataclass(frozen=True, slots=True)
class Released:
    """The charge under the key was voided."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """No answer, or none that tells whether the peer did it. The reason is for operators."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The peer does not know the method."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """The order is on its way."""

    tracking_id: str


class Insert(Command[bool]):
    """Write the order down as CHARGING, before anything has an effect; False: its key has an order already."""


@dataclass(frozen=True, slots=True)
class Charge(Command[Charged | Refused | Fenced | Released | InDoubt | Unsupported]):
    """Charge the card under the attempt's key. `again` after a try in doubt: only if the peer is known to keep keys."""

    again: bool


class Resolve(Command[Charged | Refused | Fenced | Released | InDoubt | Unsupported]):
    """Ask what became of the attempt's charge, and fence it if nothing did."""


class Ship(Command[Shipped | Refused | InDoubt]):
    """Ship under the order's key."""


class Void(Command[Released | Refused | InDoubt | Unsupported]):
    """Release the attempt's charge."""


@dataclass(frozen=True, slots=True)
class Update(Command[bool]):
    """Move the order on, if it is still in `before` and still this worker's; False: it is not.

    `refusal` is stored with a refused order. SHIPPED stores the answer and puts the e-mail and the cart to the outbox.
    """

    before: State
    after: State
    transaction_id: str = ""
    tracking_id: str = ""
    refusal: Refusal | None = None


class Send(Command[None]):
    """Try the outbox of the order at once; what fails stays in it."""


@dataclass(frozen=True, slots=True)
class Wait(Command[bool]):
    """Wait before the next try, the longer the more tries there were; False: leave the order to recovery."""

    tries: int
    reason: str


class Ending(Enum):
    """How a worker's part in an order ended."""

    SETTLED = auto()
    """The order is where it was to get; the journal has its answer."""
    LOST = auto()
    """Another worker has the order."""
    LEFT = auto()
    """The order is still open; recovery will take it up."""


Saga: TypeAlias = Generator[Command[Any], Any, Ending]


def do(command: Command[R]) -> Generator[Command[Any], Any, R]:
    """Yield a command and return what it led to, typed."""
    result: R = yield command
    return result


def place() -> Saga:
    """A new order, with its card at hand."""
    if not (yield from do(Insert())):
        return Ending.LOST
    return (yield from charge(doubtful=False))


def charge(*, doubtful: bool) -> Saga:
    """An order in CHARGING, with its card at hand; doubtful if a charge may be under way already."""
    tries = 0
    while True:
        outcome = yield from do(Charge(again=tries > 0))
        match outcome:
            case Charged(transaction_id):
                return (yield from _ship(transaction_id))
            case Refused(refusal) if doubtful:
                # An earlier try may yet arrive and succeed: no final refusal without the fence.
                return (yield from resolve(refusal))
            case Refused(refusal):
                return (yield from _end(State.CHARGING, State.DECLINED, refusal))
            case Fenced():
                return (yield from _end(State.CHARGING, State.ABANDONED))
            case Released():
                return (yield from _end(State.CHARGING, State.VOIDED, RELEASED))
            case InDoubt(reason) if (yield from do(Wait(tries, reason))):
                doubtful = True
                tries += 1
            case InDoubt() | Unsupported():
                return Ending.LEFT


def resolve(refusal: Refusal | None = None) -> Saga:
    """An order in CHARGING without its card, or with one that was refused after an earlier try was left in doubt."""
    tries = 0
    while True:
        outcome = yield from do(Resolve())
        match outcome:
            case Charged(transaction_id):
                return (yield from _ship(transaction_id))
            case InDoubt(reason) if (yield from do(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return Ending.LEFT
            case Unsupported() if refusal is None:
                return Ending.LEFT
            case _:
                return (yield from _end(State.CHARGING, *_verdict(outcome, refusal)))


def _verdict(
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
    """An order in VOIDING: shipping refused it for good."""
    tries = 0
    while True:
        outcome = yield from do(Void())
        match outcome:
            case Released():
                return (yield from _end(State.VOIDING, State.VOIDED))
            case Refused() | Unsupported():
                return (yield from _end(State.VOIDING, State.NEEDS_REFUND))
            case InDoubt(reason) if (yield from do(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return Ending.LEFT


def _ship(transaction_id: str) -> Saga:
    tries = 0
    while True:
        outcome = yield from do(Ship())
        match outcome:
            case Shipped(tracking_id):
                return (yield from _finish(transaction_id, tracking_id))
            case Refused(refusal):
                if not (yield from do(Update(State.CHARGING, State.VOIDING, transaction_id, refusal=refusal))):
                    return Ending.LOST
                return (yield from release())
            case InDoubt(reason) if (yield from do(Wait(tries, reason))):
                tries += 1
            case InDoubt():
                return Ending.LEFT


def _finish(transaction_id: str, tracking_id: str) -> Saga:
    if not (yield from do(Update(State.CHARGING, State.SHIPPED, transaction_id, tracking_id))):
        return Ending.LOST
    yield from do(Send())
    return Ending.SETTLED


def _end(before: State, after: State, refusal: Refusal | None = None) -> Saga:
    updated = yield from do(Update(before, after, refusal=refusal))
    return Ending.SETTLED if updated else Ending.LOST


RELEASED = Refusal("FailedPrecondition", "CHARGE_VOIDED", "the charge of this order was released")
