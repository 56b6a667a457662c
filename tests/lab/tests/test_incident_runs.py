"""A run of an incident proves that its fault acts and heals, and reports what differs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkout_service.reconciliation.rules import Kind
from shop_lab.incidents.alerts import Firing
from shop_lab.incidents.catalogue import Bounds, Effect, Expected, Fault, find
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import Load, Plan, Record, Truth, read
from shop_lab.incidents.run import IncidentRun, NotQuiet, Pace
from shop_lab.incidents.verdicts import INVARIANTS, alert_problems

FAULT = find("ad-slow")
QUIET = find("quiet")
FIRST = FAULT.expected.first
LABELS = {"alertname": "ErrorBudgetBurn", "slo": "get-ads", "severity": "ticket"}


@dataclass
class FakeShop(Readings):
    """A shop whose fault acts `delay` seconds after its start, and heals `healing` seconds after its end.

    Attributes:
        unfolding: how long it takes to inject all of it.
        mismatch: of the records, from a time on.
        alert: labels of the alert that fires while the fault acts, or ever after if it is `lasting`.
    """

    delay: float = 10
    healing: float = 20
    unfolding: float = 0
    before: float = 0.0
    mismatch: tuple[float, str] = (1e9, "")
    alert: Mapping[str, str] = field(default_factory=lambda: LABELS)
    lasting: bool = False
    share: float | None = 0.0
    log: str = ""
    spent: frozenset[str] = frozenset()
    now: float = 1_000.0
    injected: list[tuple[str, float]] = field(default_factory=list)
    _span: tuple[float, float] = (1e9, 1e9)

    @contextmanager
    def inject(self, fault: Fault, seconds: float) -> Iterator[None]:
        self.injected.append((fault.id, seconds))
        self.now += self.unfolding
        self._span = (self.now + self.delay, 1e9)
        yield
        self._span = (self._span[0], self.now + self.healing)

    @property
    def _acts(self) -> bool:
        return self._span[0] <= self.now < self._span[1]

    def effect(self, _effect: Effect) -> float | None:
        return 1.0 if self._acts else self.before

    def bounds(self, effect: Effect) -> Bounds:
        return effect

    def failed_share(self) -> float | None:
        return self.share

    def mismatches(self) -> Mapping[str, int] | None:
        return Counter([self.mismatch[1]] if self.now >= self.mismatch[0] else [])

    def firings(self, _since: float) -> Sequence[Firing]:
        if self.now < self._span[0] or not self.alert:
            return ()
        return [Firing(self.alert, self._span[0], None if self._acts or self.lasting else self._span[1])]

    def burnt(self) -> frozenset[str]:
        return self.spent

    def visible(self) -> Mapping[str, str]:
        return {"ad.log": self.log}

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(folder: Path, shop: FakeShop, *faults: Fault) -> Truth:
    plan = Plan(faults=tuple(fault.id for fault in faults), seconds=(100,), seed=7)
    record = Record(folder, plan, "cluster")
    truth = Truth(id=record.id, plan=plan, where="cluster", versions={}, load=Load(source="chart"))
    pace = Pace(clock=lambda: shop.now, sleep=shop.sleep, heal=60, quiet=30, resolve=30)
    found = IncidentRun(faults or (FAULT,), 100, shop, shop.inject, record, truth, pace).run()
    assert read(record.folder)[1] == found
    return found


def test_a_fault_that_acts_and_heals_is_proven(tmp_path: Path) -> None:
    truth = run(tmp_path, FakeShop())
    (injected,) = truth.faults
    times = {name: nanos / 1e9 for name, nanos in injected.times.model_dump().items()}
    assert times == {"requested": 1060, "applied": 1060, "effective": 1072, "removed": 1160, "recovered": 1181}
    assert injected.proof
    assert (set(injected.proof.baseline), injected.proof.value, injected.proof.healed) == ({0.0}, 1.0, 0.0)
    assert [(alert.name, alert.paged) for alert in truth.alerts] == [(FIRST, False)]
    assert {verdict for found in truth.invariants.values() for verdict in found.values()} == {"holds"}
    assert truth.problems == ()


def test_a_cascade_does_not_last_longer_because_it_takes_time_to_unfold(tmp_path: Path) -> None:
    truth = run(tmp_path, FakeShop(unfolding=70))
    times = truth.faults[0].times
    assert (times.applied, times.removed) == (1_130 * 10**9, 1_160 * 10**9)
    assert truth.problems == ()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"delay": 200}, "no effect of ad-slow within 120 s"),
        ({"healing": 90}, "not healed within 60 s: the effect"),
        ({"mismatch": (1_100, "CHARGED_TWICE")}, "I1 did not hold during the fault"),
        ({"mismatch": (1_170, "NOT_MAILED")}, "not healed within 60 s: I4"),
        ({"alert": {}}, f"{FIRST} did not fire"),
        ({"log": "started AD-SLOW again"}, "ad.log contains 'ad-slow'"),
    ],
)
def test_what_differs_is_a_problem(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    assert problem in run(tmp_path, FakeShop(**changes)).problems


def test_orders_may_be_late_during_a_fault(tmp_path: Path) -> None:
    shop = FakeShop()
    shop.mismatches = lambda: Counter(["NOT_MAILED"] if shop._acts else [])  # type: ignore[method-assign]
    truth = run(tmp_path, shop)
    assert truth.invariants["during"]["I4"] == "violated"
    assert truth.problems == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": None}, "no customers visit the storefront"),
        ({"before": 1.0}, "the effect of ad-slow is there before it: 1"),
        ({"mismatch": (0, "CHARGED_NOT_SHIPPED")}, "I2 do not hold before the fault"),
        ({"share": 0.5}, "I9 do not hold before the fault"),
    ],
)
def test_nothing_is_injected_into_a_shop_that_is_not_quiet(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    shop = FakeShop(**changes)
    with pytest.raises(NotQuiet, match=message):
        run(tmp_path, shop)
    assert shop.injected == []


def test_a_fault_that_nothing_removes_ends_by_itself(tmp_path: Path) -> None:
    shop = FakeShop()
    run(tmp_path, shop)
    assert shop.injected == [("ad-slow", 280)]


@pytest.mark.parametrize(("window", "problems"), [("1h", (f"{FIRST} did not resolve",)), ("6h", ())])
def test_the_first_alert_resolves_but_not_on_six_hours(tmp_path: Path, window: str, problems: tuple[str, ...]) -> None:
    shop = FakeShop(alert={**LABELS, "window": window}, lasting=True)
    assert run(tmp_path, shop).problems == problems


def test_an_alert_of_a_control_is_a_false_one(tmp_path: Path) -> None:
    assert run(tmp_path, FakeShop(alert={}), QUIET).problems == ()
    assert run(tmp_path, FakeShop(), QUIET).problems == (f"the first alert is {FIRST}, not none",)


def test_a_budget_that_an_earlier_incident_has_burnt_says_nothing_about_this_one(tmp_path: Path) -> None:
    assert run(tmp_path, FakeShop(spent=frozenset({FIRST})), QUIET).problems == ()
    assert run(tmp_path, FakeShop(spent=frozenset({FIRST})), FAULT).problems == ()


def firing(name: str, began: float, *, paged: bool = False) -> Firing:
    return Firing({"alertname": name}, began, paged_at=began + 30 if paged else None)


FIRST_IS_B = ["the first alert is B, not A"]


@pytest.mark.parametrize(
    ("fired", "problems"),
    [
        ([firing("A", 10, paged=True)], []),
        ([firing("A", 10, paged=True), firing("B", 20, paged=True), firing("C", 30)], []),
        ([firing("B", 10), firing("A", 20, paged=True)], FIRST_IS_B),
        ([firing("A", 90, paged=True)], ["A fired after 90 s, not within 60 s"]),
        ([firing("A", 10)], ["the first page is none, not A"]),
        ([firing("A", 10, paged=True), firing("B", 5, paged=True)], [*FIRST_IS_B, "the first page is B, not A"]),
        ([firing("A", 10, paged=True), firing("C", 20, paged=True)], ["C paged"]),
        ([firing("A", 10, paged=True), firing("D", 20)], ["D fired"]),
    ],
)
def test_alerts_are_compared_with_those_expected(fired: list[Firing], problems: list[str]) -> None:
    expected = Expected(first="A", within=60, page="A", may_fire=("B",), must_not_fire=("D",))
    assert list(alert_problems([expected], fired, 0)) == problems


def test_two_faults_explain_each_others_alerts() -> None:
    expected = [Expected(first="A", page="A", must_not_fire=("B",)), Expected(first="B")]
    fired = [firing("B", 10), firing("A", 20, paged=True)]
    assert list(alert_problems(expected, fired, 0)) == []
    assert list(alert_problems(expected, fired[:1], 0)) == ["A did not fire", "the first page is none, not A"]


def test_two_faults_at_once_are_removed_in_turn(tmp_path: Path) -> None:
    truth = run(tmp_path, shop := FakeShop(), FAULT, QUIET)
    assert (
        [injected.fault.id for injected in truth.faults] == [name for name, _ in shop.injected] == [FAULT.id, QUIET.id]
    )
    assert [injected.times.recovered for injected in truth.faults] == [1181 * 10**9] * 2


def test_every_mismatch_violates_an_invariant() -> None:
    assert frozenset().union(*INVARIANTS.values()) == frozenset(Kind)
