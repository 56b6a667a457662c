"""The faults that calls and databases meet while they are in force, and the durations of everything, from a seed."""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chassis import errors

Numbers = tuple[float, ...]

CHARGE, SHIP_ORDER = "/shop.PaymentService/Charge", "/shop.ShippingService/ShipOrder"
PLACE_ORDER = "/shop.CheckoutService/PlaceOrder"
REMOVE_ALL_ORDERED = "/shop.internal.OrderedCart/RemoveAllOrdered"
EFFECTS = (
    CHARGE,
    SHIP_ORDER,
    "/shop.internal.PaymentLedger/ResolveOrFence",
    "/shop.internal.PaymentLedger/Void",
    "/shop.internal.ShipmentManifest/ResolveOrFence",
    "/shop.internal.Confirmations/AcceptConfirmations",
    "/shop.EmailService/SendOrderConfirmation",
    "/shop.CartService/EmptyCart",
    REMOVE_ALL_ORDERED,
    "/shop.internal.OrderedCart/RemoveOrdered",
)


class Fate(StrEnum):
    """What may happen to a call."""

    LOSE_REQUEST = "lose_request"
    LOSE_REPLY = "lose_reply"
    DOUBLE_REQUEST = "double_request"
    DELAY_REQUEST = "delay_request"
    DELAY_REPLY = "delay_reply"
    ORPHAN_REQUEST = "orphan_request"
    """The process that calls dies, and its request is delayed: what fences are for."""
    KILL_CALLEE = "kill_callee"
    """The process that serves the call dies after the call took effect, before it can reply."""
    KILL_CALLER = "kill_caller"
    """The process that calls dies when the call has taken effect."""


@dataclass
class Faults:
    """The faults in force.

    Attributes:
        seed: of all durations.
        slow_share: of the steps of a database, those that take up to a second.
        lost_reply_share: of the commits, those whose confirmation is lost with the connection.
        fates: what may happen to any call.
        fate_share: of the charges and shipments, those that meet one of `fates`; of other calls, a fifth as many.
        calm: all faults have ended.
        refusals: the errors with which peers refuse all calls of a method, by path.
    """

    seed: int
    slow_share: float = 0.0
    lost_reply_share: float = 0.0
    fates: Sequence[Fate] = ()
    fate_share: float = 0.0
    calm: bool = False
    refusals: dict[str, errors.DomainError] = field(default_factory=dict)

    def end(self) -> None:
        """End all faults."""
        self.calm = True
        self.refusals.clear()

    def numbers_of(self, name: str) -> Numbers:
        """Return four independent numbers of [0, 1) for an event.

        They depend on the seed and the event's name only, not on any event before it: otherwise a shrunk run would have
        little in common with the run that failed.
        """
        digest = hashlib.blake2b(name.encode(), digest_size=16, key=self.seed.to_bytes(8)).digest()
        return tuple(number / 2**32 for number in struct.unpack(">4I", digest))

    def fate_of(self, path: str, numbers: Numbers) -> Fate | None:
        """Return what happens to a call of a method, by the numbers of the call."""
        share = self.fate_share if path in {CHARGE, SHIP_ORDER} else self.fate_share / 5
        if self.calm or numbers[0] >= share:
            return None
        return self.fates[int(numbers[3] * len(self.fates))]

    def seconds_of(self, step: str) -> float:
        """Return the duration of a step of a transaction."""
        if self.calm:
            return 0.0002
        first, second, third, _ = self.numbers_of(step)
        return float(10 ** (third * 3 - 3)) if first < self.slow_share else 0.0001 + second * 0.001

    def loses_reply(self, step: str) -> bool:
        """Return whether a connection to a database is lost after a commit, before its confirmation."""
        return not self.calm and self.numbers_of(step)[0] < self.lost_reply_share
