"""A game day: a hidden schedule of faults, which players find while it runs."""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from chassis.errors import DomainError, InvalidArgument
from shop_lab.incidents.catalogue import Fault, load_all
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import InjectedFault, Record, Times
from shop_lab.incidents.run import Pace

MAX_FAULTS = 20
MIN_MINUTES = 4.0
"""For each fault: figures are those of the last minute, and players need some."""
_SHARE = 0.6
"""Of its part of the game, a fault lasts at most so long: players also see the shop without one."""
_MENDED_SECONDS = 9
"""An effect has ended if it was not seen for so long; single readings lack it now and then."""


@dataclass(frozen=True)
class Turn:
    """A fault of the schedule; times are seconds, `begins` since the start of the game."""

    fault: Fault
    begins: float
    seconds: float


def plan(*, faults: int, minutes: float, seed: int) -> tuple[Turn, ...]:
    """Return a schedule: different faults, at most MAX_FAULTS, one after the other at random times.

    Raise InvalidArgument.
    """
    possible = [fault for fault in load_all().values() if fault.kind == "fault"]
    if minutes < faults * MIN_MINUTES:
        raise InvalidArgument.field("--minutes", f"must be at least {MIN_MINUTES:g} for each fault")
    chance, part = random.Random(seed), minutes * 60 / faults  # noqa: S311 - a schedule, which the seed repeats
    turns = []
    for number, fault in enumerate(chance.sample(possible, faults)):
        seconds = min(fault.seconds, _SHARE * part)
        turns.append(Turn(fault, number * part + chance.uniform(0, part - seconds), seconds))
    return tuple(turns)


@dataclass
class Game:
    """A game that runs.

    Args:
        inject: start a fault, which ends by itself after so many seconds; leaving the context removes it.
    """

    turns: Sequence[Turn]
    seconds: float
    readings: Readings
    inject: Callable[[Fault, float], AbstractContextManager[object]]
    record: Record
    pace: Pace = field(default_factory=Pace)

    def run(self) -> None:
        """Run the schedule and close the record, also if the game is interrupted."""
        self.record.save()
        began = self.pace.clock()
        try:
            for turn in self.turns:
                self._wait_until(began + turn.begins)
                self._play(turn)
            self._wait_until(began + self.seconds)
        finally:
            self.record.close()

    def _wait_until(self, end: float) -> None:
        self.pace.sleep(max(0.0, end - self.pace.clock()))

    def _play(self, turn: Turn) -> None:
        """Start a fault, watch it until its time is over, and remove it. What cannot act is a problem of the record."""
        truth, times = self.record.truth, Times(requested=self.pace.nanos())
        truth.faults.append(InjectedFault(fault=turn.fault, seconds=turn.seconds, times=times))
        self.record.save()
        try:
            with self.inject(turn.fault, turn.seconds):
                times.applied = self.pace.nanos()
                self._watch(turn, times)
        except DomainError as error:
            truth.problems.append(f"{turn.fault.id}: {error.message}")
        finally:
            times.removed = self.pace.nanos()
            self.record.save()

    def _watch(self, turn: Turn, times: Times) -> None:
        """Note when the effect is seen first, and when it has ended before its time because somebody mended it."""
        for _ in self.pace.ticks(turn.seconds):
            value = self.readings.value_of(turn.fault)
            if turn.fault.shows(value):
                times.effective = times.effective or self.pace.nanos()
                times.recovered = None
            elif value is not None and times.effective:
                times.recovered = times.recovered or self.pace.nanos()
        if times.recovered and self.pace.nanos() - times.recovered < _MENDED_SECONDS * 10**9:
            times.recovered = None
