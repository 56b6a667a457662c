"""Run an incident: baseline, fault, proof that it bites, removal, proof that the shop has healed."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from chassis.errors import FailedPrecondition
from shop_lab.incidents import verdicts
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.leaks import find_leaks, texts_in
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import Firing, InjectedFault, Proof, Record, Times

_REMOVAL_SECONDS = 180.0
"""After its time, in which the records are compared, a fault would end by itself."""


class NotQuiet(FailedPrecondition):
    """The shop is not as it should be before an incident; nothing was injected."""


@dataclass(frozen=True)
class Pace:
    """How long an incident waits, in seconds.

    Attributes:
        baseline: how long the shop is observed before the fault.
        quiet: how long to wait for customers, and until earlier pages have ended.
        heal: how long after the fault the shop may take to heal, and `resolve` its first alert to resolve.
    """

    baseline: float = 60
    quiet: float = 900
    heal: float = 600
    resolve: float = 900
    pause: float = 3
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    def ticks(self, seconds: float) -> Iterator[float]:
        """Yield the seconds since the start, with pauses, until they are over."""
        began = self.clock()
        while (elapsed := self.clock() - began) < seconds:
            yield elapsed
            self.sleep(min(self.pause, seconds - elapsed))

    def nanos(self) -> int:
        return int(self.clock() * 1e9)


@dataclass
class IncidentRun:
    """A run of one fault.

    Args:
        seconds: how long it lasts.
        inject: start a fault, which ends by itself after so many seconds; leaving the context removes it.
        say: called with a line for each event.
    """

    fault: Fault
    seconds: float
    readings: Readings
    inject: Callable[[Fault, float], AbstractContextManager[object]]
    record: Record
    pace: Pace = field(default_factory=Pace)
    say: Callable[[str], None] = lambda _: None
    _burnt: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._truth, self._times, effect = self.record.truth, Times(), self.fault.effect
        bounds = {"above": effect.above, "below": effect.below} if effect else {}
        self._proof = Proof(query=effect.query if effect else "", **bounds)

    def run(self) -> None:
        """Run the incident and close its record. Raise NotQuiet, or what the injection raises: nothing is left."""
        self._observe_baseline()
        injected = InjectedFault(fault=self.fault, seconds=self.seconds, times=self._times, proof=self._proof)
        self._truth.faults.append(injected)
        self._mark("requested")
        with self.inject(self.fault, self.seconds + _REMOVAL_SECONDS):
            self._mark("applied")
            self._observe_fault()
        self._mark("removed")
        self._observe_healing()
        self._observe_alerts()
        self.record.close()

    def _observe_baseline(self) -> None:
        for _ in self.pace.ticks(self.pace.quiet):
            if self.readings.failed_share() is not None and not self._pages():
                break
        else:
            raise NotQuiet("no customers visit the storefront, or a page of an earlier incident has not ended")
        for _ in self.pace.ticks(self.pace.baseline):
            self._proof.baseline.append(self.readings.value_of(self.fault))
        self._truth.invariants["before"] = found = verdicts.check_invariants(self.readings)
        if violated := [name for name, verdict in found.items() if verdict == "violated"]:
            raise NotQuiet(f"{', '.join(violated)} do not hold before the fault")
        self._burnt = self.readings.burnt()
        if self.fault.shows(value := self._proof.baseline[-1]):
            raise NotQuiet(f"the effect of {self.fault.id} is there before it: {value:.4g}")

    def _observe_fault(self) -> None:
        unfolded = self.pace.clock() - self._began
        for elapsed in self.pace.ticks(max(0.0, self.seconds - unfolded)):
            value = self.readings.value_of(self.fault)
            if self.fault.shows(value) and not self._times.effective:
                self._proof.value = value
                self._mark("effective", f"effective after {elapsed:.0f} s: {value:.4g}")
        effect, effective = self.fault.effect, self._times.effective or math.inf
        if effect and effective - (self._times.applied or 0) > effect.within * 1e9:
            self._truth.problems.append(f"no effect of {self.fault.id} within {effect.within:.0f} s")
        self._truth.invariants["during"] = found = verdicts.check_invariants(self.readings)
        broken = [name for name in sorted(verdicts.SAFETY) if found[name] == "violated"]
        self._truth.problems += [f"{name} did not hold during the fault" for name in broken]
        self._truth.problems += find_leaks({**self.readings.visible(), **texts_in(self.record.folder)}, self.fault)

    def _observe_healing(self) -> None:
        for elapsed in self.pace.ticks(self.pace.heal):
            self._proof.healed = value = self.readings.value_of(self.fault)
            is_unknown = value is None and None not in self._proof.baseline
            if is_unknown or self.fault.shows(value):
                continue  # and leave comparing all records for later
            found = verdicts.check_invariants(self.readings)
            if set(found.values()) == {"holds"}:
                self._mark("recovered", f"healed after {elapsed:.0f} s")
                break
        else:
            found = verdicts.check_invariants(self.readings)
            broken = ", ".join(name for name, verdict in found.items() if verdict != "holds") or "the effect"
            self._truth.problems.append(f"not healed within {self.pace.heal:.0f} s: {broken}")
        self._truth.invariants["after"] = found

    def _observe_alerts(self) -> None:
        expected = self.fault.expected
        for _ in self.pace.ticks(self.pace.resolve):
            if expected.first not in {firing.name for firing in _lasting(self._firings())}:
                break
        else:
            self._truth.problems.append(f"{expected.first} did not resolve")
        # What an earlier incident has burnt says nothing about this one.
        unrelated = self._burnt - {expected.first, expected.page}
        self._truth.alerts = self._firings()
        firings = [firing for firing in self._truth.alerts if firing.name not in unrelated]
        for firing in firings:
            self.say(
                f"{firing.name} {'paged' if firing.paged_at else 'fired'} after {firing.began - self._began:.0f} s"
            )
        self._truth.problems += verdicts.alert_problems(expected, firings, self._began)

    @property
    def _began(self) -> float:
        """The start of the fault, in seconds since 1970."""
        return self._times.requested / 1e9

    def _firings(self) -> list[Firing]:
        return list(self.readings.firings(self._began))

    def _pages(self) -> list[Firing]:
        return [firing for firing in _lasting(self.readings.firings(0)) if firing.labels.get("severity") == "page"]

    def _mark(self, moment: str, text: str = "") -> None:
        setattr(self._times, moment, self.pace.nanos())
        self.record.save()
        self.say(text or moment)


def _lasting(firings: Sequence[Firing]) -> list[Firing]:
    # The burn of six hours ends half an hour after the errors; it says nothing new then.
    return [firing for firing in firings if firing.ended is None and firing.labels.get("window") != "6h"]
