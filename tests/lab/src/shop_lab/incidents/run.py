"""Run an incident: baseline, fault, proof that it bites, removal, proof that the shop has healed."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from chassis.errors import FailedPrecondition
from shop_lab.incidents import verdicts
from shop_lab.incidents.alerts import Firing
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.leaks import find_leaks, texts_in
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import (
    InjectedFault,
    Phase,
    Proof,
    Record,
    Times,
    Truth,
    Verdict,
)

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
        truth: what is known before the start.
        say: called with a line for each event.
    """

    fault: Fault
    seconds: float
    readings: Readings
    inject: Callable[[Fault, float], AbstractContextManager[object]]
    record: Record
    truth: Truth
    pace: Pace = field(default_factory=Pace)
    say: Callable[[str], None] = lambda _: None
    _times: dict[str, int] = field(default_factory=dict)
    _baseline: list[float | None] = field(default_factory=list)
    _value: float | None = None
    _healed: float | None = None
    _invariants: dict[Phase, Mapping[str, Verdict]] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)
    _burnt: frozenset[str] = frozenset()

    def run(self) -> Truth:
        """Run the incident and close its record. Raise NotQuiet, or what the injection raises: nothing is left."""
        self._observe_baseline()
        self._mark("requested")
        with self.inject(self.fault, self.seconds + _REMOVAL_SECONDS):
            self._mark("applied")
            self._observe_fault()
        self._mark("removed")
        self._observe_healing()
        self._observe_alerts()
        truth = self._known()
        self.record.close(truth)
        return truth

    def _observe_baseline(self) -> None:
        for _ in self.pace.ticks(self.pace.quiet):
            if verdicts.failed_share(self.readings) is not None and not self._pages():
                break
        else:
            raise NotQuiet("no customers visit the storefront, or a page of an earlier incident has not ended")
        for _ in self.pace.ticks(self.pace.baseline):
            self._baseline.append(self.readings.value_of(self.fault))
        self._invariants["before"] = found = verdicts.check_invariants(self.readings)
        if violated := [name for name, verdict in found.items() if verdict == "violated"]:
            raise NotQuiet(f"{', '.join(violated)} do not hold before the fault")
        self._burnt = self.readings.burnt()
        if self.readings.shows(self.fault, value := self._baseline[-1]):
            raise NotQuiet(f"the effect of {self.fault.id} is there before it: {value:.4g}")

    def _observe_fault(self) -> None:
        unfolded = self.pace.clock() - self._began
        for elapsed in self.pace.ticks(max(0.0, self.seconds - unfolded)):
            value = self.readings.value_of(self.fault)
            if self.readings.shows(self.fault, value) and "effective" not in self._times:
                self._value = value
                self._mark("effective", f"effective after {elapsed:.0f} s: {value:.4g}")
        effect, effective = self.fault.effect, self._times.get("effective", math.inf)
        if effect and effective - self._times["applied"] > effect.within * 1e9:
            self._problems.append(f"no effect of {self.fault.id} within {effect.within:.0f} s")
        self._invariants["during"] = found = verdicts.check_invariants(self.readings)
        broken = [name for name in sorted(verdicts.SAFETY) if found[name] == "violated"]
        self._problems += [f"{name} did not hold during the fault" for name in broken]
        self._problems += find_leaks({**self.readings.visible(), **texts_in(self.record.folder)}, self.fault)

    def _observe_healing(self) -> None:
        for elapsed in self.pace.ticks(self.pace.heal):
            if not self._is_gone():
                continue  # and leave comparing all records for later
            found = verdicts.check_invariants(self.readings)
            if set(found.values()) == {"holds"}:
                self._mark("recovered", f"healed after {elapsed:.0f} s")
                break
        else:
            found = verdicts.check_invariants(self.readings)
            broken = ", ".join(name for name, verdict in found.items() if verdict != "holds") or "the effect"
            self._problems.append(f"not healed within {self.pace.heal:.0f} s: {broken}")
        self._invariants["after"] = found

    def _observe_alerts(self) -> None:
        if self.truth.where == "local":
            return  # a local shop has no alerts
        expected = self.fault.expected
        for _ in self.pace.ticks(self.pace.resolve):
            if expected.first not in {firing.name for firing in _lasting(self._firings())}:
                break
        else:
            self._problems.append(f"{expected.first} did not resolve")
        # What an earlier incident has burnt says nothing about this one.
        unrelated = self._burnt - {expected.first, expected.page}
        firings = [firing for firing in self._firings() if firing.name not in unrelated]
        for firing in firings:
            self.say(f"{firing.name} {'paged' if firing.paged else 'fired'} after {firing.began - self._began:.0f} s")
        self._problems += verdicts.alert_problems(expected, firings, self._began)

    def _is_gone(self) -> bool:
        self._healed = value = self.readings.value_of(self.fault)
        is_known = value is not None or None in self._baseline
        return is_known and not self.readings.shows(self.fault, value)

    @property
    def _began(self) -> float:
        """The start of the fault, in seconds since 1970."""
        return self._times.get("requested", self.pace.nanos()) / 1e9

    def _firings(self) -> list[Firing]:
        return list(self.readings.firings(self._began))

    def _pages(self) -> list[Firing]:
        return [firing for firing in _lasting(self.readings.firings(0)) if firing.labels.get("severity") == "page"]

    def _mark(self, moment: str, text: str = "") -> None:
        self._times[moment] = self.pace.nanos()
        self.record.save(self._known())
        self.say(text or moment)

    def _known(self) -> Truth:
        times = Times.model_validate(self._times)
        injected = InjectedFault(fault=self.fault, seconds=self.seconds, times=times, proof=self._proof())
        return self.truth.model_copy(
            update={
                "faults": (injected,),
                "alerts": tuple(map(verdicts.observed_alert, self._firings())),
                "invariants": dict(self._invariants),
                "problems": tuple(self._problems),
            }
        )

    def _proof(self) -> Proof | None:
        effect = self.fault.effect
        if effect is None:
            return None
        local, bounds = effect.local if self.truth.where == "local" else None, self.readings.bounds(effect)
        return Proof(
            query=f"{local.figure} of {local.service}" if local else effect.query,
            above=bounds.above,
            below=bounds.below,
            baseline=tuple(self._baseline),
            value=self._value,
            healed=self._healed,
        )


def _lasting(firings: Sequence[Firing]) -> list[Firing]:
    # The burn of six hours ends half an hour after the errors; it says nothing new then.
    return [firing for firing in firings if firing.ended is None and firing.labels.get("window") != "6h"]
