"""The steps of a saga. It yields them in order; the executor performs each one and sends its result back."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from checkout_service.domain import Transition
from checkout_service.outcomes import ChargeOutcome, ShipOutcome, VoidOutcome

R = TypeVar("R")


class Command(Generic[R]):
    """A step that the executor performs; R is its result."""

    __slots__ = ()


class Insert(Command[bool]):
    """Record the order as CHARGING before it has any effect. False: its scope or its cart already has an order."""


@dataclass(frozen=True, slots=True)
class Charge(Command[ChargeOutcome]):
    """Charge the card under the attempt's key; `retry` after a try that was left in doubt."""

    retry: bool


class Resolve(Command[ChargeOutcome]):
    """Resolve the attempt's charge, or fence its key."""


class Ship(Command[ShipOutcome]):
    """Ship under the attempt's key."""


class ResolveShipment(Command[ShipOutcome]):
    """Resolve the attempt's shipment, or fence its key."""


class Void(Command[VoidOutcome]):
    """Release the attempt's charge."""


class StartRemoval(Command[None]):
    """Start to remove the ordered items from the cart; `Send` waits for it."""


@dataclass(frozen=True, slots=True)
class Update(Command[bool]):
    """Record a transition. False: the order is in another state, or another worker has taken it over."""

    transition: Transition


class Restore(Command[bool]):
    """Record the order again if the journal has lost what this worker inserted. True: it did."""


class Send(Command[None]):
    """Enqueue the confirmation, and wait for the removal; an item that fails remains in the outbox."""


@dataclass(frozen=True, slots=True)
class Wait(Command[bool]):
    """Back off before the next try. False: stop trying and leave the order to recovery."""

    tries: int
    reason: str
