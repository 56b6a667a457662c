"""The faults that calls and databases meet while they are in force, and the durations of everything, from a seed."""

import hashlib
import struct
from collections import defaultdict, deque
from collections.abc import Sequence
from enum import StrEnum

from chassis import errors

Numbers = tuple[float, float, float, float]

CHARGE, SHIP_ORDER = "/shop.PaymentService/Charge", "/shop.ShippingService/ShipOrder"
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
_FOUR_INTEGERS = struct.Struct(">4I")
_UNIT = 2.0**-32


class Fate(StrEnum):
    """What may happen to a call."""

    LOSE_REQUEST = "lose_request"
    LOSE_REPLY = "lose_reply"
    DOUBLE_REQUEST = "double_request"
    DELAY_REQUEST = "delay_request"
    DELAY_REPLY = "delay_reply"
    KILL_CALLEE = "kill_callee"
    """The process that serves the call dies after the call took effect, before it can reply."""
    KILL_CALLER = "kill_caller"
    """The process that calls dies when the call has taken effect."""


class Faults:
    """The faults in force.

    Args:
        seed: of all durations.
        slow_share: of the steps of a database, those that take up to a second.
        lost_reply_share: of the commits, those whose confirmation is lost with the connection.
        fates: what may happen to any call.
        fate_share: of the charges and shipments, those that meet one of `fates`; of other calls, a fifth as many.

    Attributes:
        calm: all faults have ended.
        planned: the fates of the next calls by path, None for a call that succeeds.
        refusals: the errors with which peers refuse all calls of a method, by path.
        delays: by path, the most seconds that calls of a method take longer.
        down: the databases that refuse connections.
    """

    def __init__(
        self,
        seed: int,
        slow_share: float = 0.0,
        lost_reply_share: float = 0.0,
        fates: Sequence[Fate] = (),
        fate_share: float = 0.0,
    ) -> None:
        self.calm = False
        self.planned: defaultdict[str, deque[Fate | None]] = defaultdict(deque)
        self.refusals: dict[str, errors.DomainError] = {}
        self.delays: dict[str, float] = {}
        self.down: set[str] = set()
        self._slow_share = slow_share
        self._lost_reply_share = lost_reply_share
        self._fates = fates
        self._fate_share = fate_share
        self._hash = hashlib.blake2b(digest_size=16, key=seed.to_bytes(8))

    def end(self) -> None:
        """End all faults."""
        self.calm = True
        self.planned.clear()
        self.refusals.clear()
        self.delays.clear()
        self.down.clear()

    def numbers_of(self, name: str) -> Numbers:
        """Return four independent numbers of [0, 1) for an event.

        They depend on the seed and the event's name only, not on any event before it: otherwise a shrunk run would have
        little in common with the run that failed.
        """
        hashed = self._hash.copy()
        hashed.update(name.encode())
        first, second, third, fourth = _FOUR_INTEGERS.unpack(hashed.digest())
        return first * _UNIT, second * _UNIT, third * _UNIT, fourth * _UNIT

    def next_fate(self, path: str, numbers: Numbers) -> Fate | None:
        """Return what happens to the next call of a method: as planned, or else by the numbers of the call."""
        if planned := self.planned[path]:
            return planned.popleft()
        share = self._fate_share if path in {CHARGE, SHIP_ORDER} else self._fate_share / 5
        if self.calm or numbers[0] >= share:
            return None
        return self._fates[int(numbers[3] * len(self._fates))]

    def seconds_of(self, step: str) -> float:
        """Return the duration of a step of a transaction."""
        if self.calm:
            return 0.0002
        first, second, third, _ = self.numbers_of(step)
        return float(10 ** (third * 3 - 3)) if first < self._slow_share else 0.0001 + second * 0.001

    def loses_reply(self, step: str) -> bool:
        """Return whether a connection to a database is lost after a commit, before its confirmation."""
        return not self.calm and self.numbers_of(step)[0] < self._lost_reply_share
