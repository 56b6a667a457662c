"""What the seed and the plan say about single events: the fate of a call, the duration of a step of a database."""

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

from chassis import errors
from shop_lab.simulation.plan import CallFault, Fate, Outage, Plan, Refusals, Slowness

Numbers = tuple[float, float, float, float]
F = TypeVar("F", Outage, Refusals, Slowness)

_FOUR_INTEGERS = struct.Struct(">4I")
_UNIT = 2.0**-32


class Chances:
    """The chances of one run.

    Attributes:
        calm: the faults have ended.
        injected: the faults of calls that occurred.
    """

    def __init__(self, plan: Plan, now: Callable[[], float]) -> None:
        self.calm = False
        self.injected: list[CallFault] = []
        self._plan = plan
        self._now = now
        self._hash = hashlib.blake2b(digest_size=16, key=plan.seed.to_bytes(8))
        self._listed = None if plan.call_faults is None else {fault.call: fault.fate for fault in plan.call_faults}

    def of(self, name: str) -> Numbers:
        """Return four independent numbers of [0, 1) for an event.

        They depend on the seed and the event's name only, not on any event before it.
        """
        hashed = self._hash.copy()
        hashed.update(name.encode())
        first, second, third, fourth = _FOUR_INTEGERS.unpack(hashed.digest())
        return first * _UNIT, second * _UNIT, third * _UNIT, fourth * _UNIT

    def fate_of(self, call: str, numbers: Numbers) -> Fate | None:
        """Return what happens to a call, which its name identifies: by the plan's rate, or by its list."""
        fate = self._listed.get(call) if self._listed is not None else self._random_fate(numbers)
        if fate is not None:
            self.injected.append(CallFault(call, fate))
        return fate

    def _random_fate(self, numbers: Numbers) -> Fate | None:
        if numbers[0] >= self._plan.call_fault_rate or self.calm:
            return None
        return self._plan.fates[int(numbers[3] * len(self._plan.fates))]

    def slowness_of(self, path: str) -> float:
        """Return by how many seconds a call of a method that begins now takes longer, at most."""
        return max((fault.delay for fault in self._current(Slowness) if fault.path == path), default=0.0)

    def refusal_of(self, path: str) -> errors.DomainError | None:
        """Return the error by which a peer refuses every call of a method now; None if it does not."""
        for fault in self._current(Refusals):
            if fault.path == path:
                if fault.kind == "InvalidArgument":
                    return errors.InvalidArgument.field("address", "is refused")
                kind: type[errors.DomainError] = getattr(errors, fault.kind)
                return kind("refused")
        return None

    def seconds_of(self, step: str) -> float:
        """Return the duration of a step of a transaction."""
        if self.calm:
            return 0.0002
        first, second, third, _ = self.of(step)
        return float(10 ** (third * 3 - 3)) if first < self._plan.slow_rate else 0.0001 + second * 0.001

    def loses_reply(self, step: str) -> bool:
        """Return whether a connection to a database is lost after a commit, before its confirmation."""
        return not self.calm and self.of(step)[0] < self._plan.lost_reply_rate

    def is_down(self, database: str) -> bool:
        """Return whether a database refuses connections now."""
        return any(fault.database == database for fault in self._current(Outage))

    def _current(self, kind: type[F]) -> Iterator[F]:
        """Yield the planned faults of a kind that last now."""
        for fault in () if self.calm else self._plan.faults:
            if isinstance(fault, kind) and fault.at <= self._now() < fault.at + fault.seconds:
                yield fault
