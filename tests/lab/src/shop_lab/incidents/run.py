"""Run an incident: baseline, fault, proof that it bites, removal, proof that the shop has healed."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from chassis.errors import FailedPrecondition, Unavailable
from shop_lab.incidents import verdicts
from shop_lab.incidents.alerts import Firing
from shop_lab.incidents.catalogue import Fault
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import (
    InjectedFault,
    ObservedAlert,
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
        inject: start a fault for so many seconds; leaving the context removes it.
        truth: what is known before the start.
        say: called with a line for each phase.
    """

    fault: Fault
    seconds: float
    readings: Readings
    inject: Callable[[Fault, float], AbstractContextManager[None]]
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

    def run(self) -> Truth:
        """Run the incident and close its record. Raise NotQuiet, or what the injection raises: nothing is injected."""
        self._observe_baseline()
        self._mark("requested")
        with self.inject(self.fault, self.seconds + _REMOVAL_SECONDS):
            self._mark("applied")
            self.say("applied")
            self._observe_fault()
        self._mark("removed")
        self.say("removed")
        self._observe_healing()
        if self.truth.where == "cluster":  # a local shop has no alerts
            began = self._times["applied"] / 1e9
            self._problems += verdicts.alert_problems(self.fault.expected, self._firings(), began)
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
            self._baseline.append(self._effect())
        self._invariants["before"] = found = verdicts.check_invariants(self.readings)
        if violated := [name for name, verdict in found.items() if verdict == "violated"]:
            raise NotQuiet(f"{', '.join(violated)} do not hold before the fault")
        if self._bites(value := self._baseline[-1]):
            raise NotQuiet(f"the effect is there before the fault: {value:.4g}")

    def _observe_fault(self) -> None:
        effect = self.fault.effect
        for elapsed in self.pace.ticks(self.seconds):
            value = self._effect()
            if self._bites(value) and "effective" not in self._times:
                self._value = value
                self._mark("effective")
                self.say(f"effective after {elapsed:.0f} s: {value:.4g}")
        if effect and self._since_applied("effective") > effect.within:
            self._problems.append(f"no effect within {effect.within:.0f} s")
        self._invariants["during"] = found = verdicts.check_invariants(self.readings)
        broken = [name for name in sorted(verdicts.SAFETY) if found[name] == "violated"]
        self._problems += [f"{name} did not hold during the fault" for name in broken]

    def _observe_healing(self) -> None:
        for elapsed in self.pace.ticks(self.pace.heal):
            value = self._effect()
            if self._bites(value) or (value is None and None not in self._baseline):
                continue  # and leave comparing all records for later
            found = verdicts.check_invariants(self.readings)
            if set(found.values()) == {"holds"}:
                self._healed = value
                self._mark("recovered")
                self.say(f"healed after {elapsed:.0f} s")
                break
        else:
            found = verdicts.check_invariants(self.readings)
            broken = ", ".join(name for name, verdict in found.items() if verdict != "holds") or "the effect"
            self._problems.append(f"not healed within {self.pace.heal:.0f} s: {broken}")
        self._invariants["after"] = found
        for _ in self.pace.ticks(self.pace.resolve):
            if all(firing.ended for firing in self._firings() if firing.name == self.fault.expected.first):
                break
        else:
            self._problems.append(f"{self.fault.expected.first} did not resolve")

    def _effect(self) -> float | None:
        try:
            return self.readings.effect(self.fault.effect) if self.fault.effect else None
        except Unavailable:  # a fault may reach what observes it
            return None

    def _bites(self, value: float | None) -> bool:
        effect = self.fault.effect
        return effect is not None and self.readings.bounds(effect).contain(value)

    def _firings(self) -> list[Firing]:
        return list(self.readings.firings(self._times["applied"] / 1e9))

    def _pages(self) -> list[Firing]:
        # The page on six hours ends half an hour after the errors; it says nothing new then.
        active = [firing for firing in self.readings.firings(0) if firing.ended is None]
        return [
            firing
            for firing in active
            if firing.labels.get("severity") == "page" and firing.labels.get("window") != "6h"
        ]

    def _since_applied(self, moment: str) -> float:
        nanos = self._times.get(moment)
        return float("inf") if nanos is None else (nanos - self._times["applied"]) / 1e9

    def _mark(self, moment: str) -> None:
        self._times[moment] = self.pace.nanos()
        self.record.save(self._known())

    def _known(self) -> Truth:
        injected = InjectedFault(
            fault=self.fault, seconds=self.seconds, times=Times(**self._times), proof=self._proof()
        )
        fired = self._firings() if "applied" in self._times else []
        return self.truth.model_copy(
            update={
                "faults": (injected,),
                "alerts": tuple(map(_observed, fired)),
                "invariants": dict(self._invariants),
                "problems": tuple(self._problems),
            }
        )

    def _proof(self) -> Proof | None:
        effect = self.fault.effect
        if effect is None:
            return None
        local = effect.local if self.truth.where == "local" else None
        query = f"{local.figure} of {local.service}" if local else effect.query
        bounds = self.readings.bounds(effect)
        return Proof(
            query=query,
            above=bounds.above,
            below=bounds.below,
            baseline=tuple(self._baseline),
            value=self._value,
            healed=self._healed,
        )


def _observed(firing: Firing) -> ObservedAlert:
    return ObservedAlert(
        name=firing.name,
        severity=firing.labels.get("severity", ""),
        paged=firing.paged,
        fired=int(firing.began * 1e9),
        resolved=None if firing.ended is None else int(firing.ended * 1e9),
    )
