"""The commands that sagas yield, and the outcomes of calls to payment and shipping."""

import re
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar

from checkout_service.domain import Refusal, Transition

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Charged:
    """The card was charged. `charged_at` is a Unix time, or 0 if the charge was just made or its time is unknown."""

    transaction_id: str
    charged_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A final refusal: the peer did nothing, and no retry will help."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class Fenced:
    """The key is fenced: no charge or shipment under this key has succeeded or can succeed.

    `existing` is True if an earlier call set the fence. Other implementations of the peer may always report False.
    """

    existing: bool = False


@dataclass(frozen=True, slots=True)
class Voided:
    """The charge under the key was voided."""


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key was already used for a charge or shipment with a different amount, card, address or lines.

    `transaction_id` and `charged_at` describe the earlier charge if it is known; otherwise they are "" and 0.
    """

    transaction_id: str = ""
    charged_at: float = 0.0


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The call may or may not have taken effect. `reason` is the error's reason, for operators."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The peer does not implement the method."""


@dataclass(frozen=True, slots=True)
class Shipped:
    tracking_id: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Shipping has no record of the key. It may have deleted an old record, so the order may have been shipped."""


ChargeOutcome: TypeAlias = Charged | Refused | Fenced | Voided | KeyReused | InDoubt | Unsupported
VoidOutcome: TypeAlias = Voided | Refused | InDoubt | Unsupported
ShipOutcome: TypeAlias = Shipped | Refused | Fenced | Forgotten | KeyReused | InDoubt | Unsupported


class Command(Generic[R]):
    """A step that the executor performs, with a result of type R. Metrics and failpoints identify it by `name`."""

    __slots__ = ()
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class Insert(Command[bool]):
    """Record the order as CHARGING before any other step. Return False if its scope or cart already has an order."""


@dataclass(frozen=True, slots=True)
class Charge(Command[ChargeOutcome]):
    """Charge the card under the attempt's key. If `retry`, an earlier try may already have charged it."""

    retry: bool


class Resolve(Command[ChargeOutcome]):
    """Return the outcome of the attempt's charge. If payment has no record of the charge, fence its key."""


@dataclass(frozen=True, slots=True)
class Ship(Command[ShipOutcome]):
    """Ship the order under the attempt's key. See `Charged` for `charged_at`, and `Charge` for `retry`."""

    charged_at: float = 0.0
    retry: bool = False


@dataclass(frozen=True, slots=True)
class ResolveShipment(Command[ShipOutcome]):
    """Return the outcome of the attempt's shipment. If shipping has no record of the shipment, fence its key."""

    charged_at: float = 0.0


class Void(Command[VoidOutcome]):
    """Void the attempt's charge."""


class StartRemoval(Command[None]):
    """Start removing the ordered items from the cart; `Send` waits for this to finish."""


@dataclass(frozen=True, slots=True)
class Update(Command[bool]):
    """Record a transition. Return False if the order's state has changed or another worker has taken the order over."""

    transition: Transition


class Restore(Command[bool]):
    """Record the order again if this worker inserted it and the journal has lost it. Return whether it was recorded."""


class Send(Command[None]):
    """Start sending the confirmation, and wait until the cart is updated. If either fails, the outbox retries it."""


@dataclass(frozen=True, slots=True)
class Wait(Command[bool]):
    """Back off before the next try. Return False if the saga must stop trying and leave the order to recovery."""

    tries: int
    reason: str
