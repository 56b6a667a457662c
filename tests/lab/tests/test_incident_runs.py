"""A run of an incident proves that its fault acts and heals; a game day hides its schedule, and scores answers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import InvalidArgument
from checkout_service.reconciliation.rules import Kind
from shop_lab.incidents import gameday
from shop_lab.incidents.catalogue import Effect, Expected, Fault, load_all
from shop_lab.incidents.game import Game, Turn, plan
from shop_lab.incidents.gameday import NoGameDay
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import Firing, InjectedFault, Plan, Record, RecordMalformed, Times, Truth, read
from shop_lab.incidents.run import IncidentRun, NotQuiet, Pace
from shop_lab.incidents.scores import ANSWERS, SCORES, Answer, score
from shop_lab.incidents.targets import CannotAct
from shop_lab.incidents.verdicts import INVARIANTS, alert_problems

SECOND = 10**9
CATALOGUE = load_all()
QUIET, EFFECT = CATALOGUE["quiet"], CATALOGUE["ad-slow"].effect
FAULT = CATALOGUE["ad-slow"].model_copy(update={"effect": EFFECT and EFFECT.model_copy(update={"within": 40})})
FIRST = FAULT.expected.first
LABELS = {"alertname": "ErrorBudgetBurn", "slo": "get-ads", "severity": "ticket"}


@dataclass
class FakeShop(Readings):
    """A shop whose fault acts `delay` seconds after its start, until `healing` seconds after its end or it is `mended`.

    Attributes:
        unfolding: how long it takes to inject all of it.
        flickers: whether some readings lack the effect.
        mismatch: of the records, from a time on.
        alert: labels of the alert that fires while the fault acts, or ever after if it is `lasting`.
    """

    delay: float = 10
    healing: float = 20
    unfolding: float = 0
    mended: float = 1e9
    flickers: bool = False
    refuses: bool = False
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
        if self.refuses:
            raise CannotAct("the policy is missing")
        self.injected.append((fault.id, seconds))
        self.now += self.unfolding
        self._span = (self.now + self.delay, 1e9)
        yield
        self._span = (self._span[0], self.now + self.healing)

    @property
    def acts(self) -> bool:
        flickered = self.flickers and self.now % 60 == 10
        return self._span[0] <= self.now < min(self._span[1], self.mended) and not flickered

    def effect(self, _effect: Effect) -> float | None:
        return 1.0 if self.acts else self.before

    def failed_share(self) -> float | None:
        return self.share

    def mismatches(self) -> frozenset[str]:
        return frozenset([self.mismatch[1]] if self.now >= self.mismatch[0] else [])

    def firings(self, _since: float) -> Sequence[Firing]:
        if self.now < self._span[0] or not self.alert:
            return ()
        ended = None if self.acts or self.lasting else self._span[1]
        return [Firing(labels=self.alert, began=self._span[0], ended=ended)]

    def burnt(self) -> frozenset[str]:
        return self.spent

    def visible(self) -> Mapping[str, str]:
        return {"ad.log": self.log}

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def begun(folder: Path, fault: Fault, seconds: float) -> Record:
    return Record(folder, Plan(faults=(fault.id,), seconds=(seconds,)), "shop", {})


def run(folder: Path, shop: FakeShop, fault: Fault = FAULT) -> Truth:
    pace = Pace(clock=lambda: shop.now, sleep=shop.sleep, heal=60, quiet=30, resolve=30)
    record = begun(folder, fault, 100)
    IncidentRun(fault, 100, shop, shop.inject, record, pace).run()
    assert read(record.folder)[1] == record.truth
    return record.truth


def moments(truth: Truth) -> dict[str, float]:
    """Return the times of the fault, in seconds since the start."""
    found = truth.faults[0].times.model_dump(exclude_none=True)
    return {name: round(nanos / SECOND) - 1_000 for name, nanos in found.items()}


def test_a_fault_that_acts_and_heals_is_proven(tmp_path: Path) -> None:
    truth = run(tmp_path, shop := FakeShop())
    assert moments(truth) == {"requested": 60, "applied": 60, "effective": 72, "removed": 160, "recovered": 181}
    assert (proof := truth.faults[0].proof)
    assert (set(proof.baseline), proof.value, proof.healed) == ({0.0}, 1.0, 0.0)
    assert [(alert.name, alert.paged_at) for alert in truth.alerts] == [(FIRST, None)]
    assert {verdict for found in truth.invariants.values() for verdict in found.values()} == {"holds"}
    assert truth.problems == []
    assert shop.injected == [("ad-slow", 280)]  # it ends by itself if nothing removes it


def test_a_cascade_does_not_last_longer_because_it_takes_time_to_unfold(tmp_path: Path) -> None:
    truth = run(tmp_path, FakeShop(unfolding=70))
    assert (moments(truth)["applied"], moments(truth)["removed"]) == (130, 160)
    assert truth.problems == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"delay": 50}, "no effect of ad-slow within 40 s"),
        ({"delay": 200}, "no effect of ad-slow within 40 s"),
        ({"healing": 90}, "not healed within 60 s: the effect"),
        ({"mismatch": (1_100, "CHARGED_TWICE")}, "I1 did not hold during the fault"),
        ({"mismatch": (1_170, "NOT_MAILED")}, "not healed within 60 s: I4"),
        ({"alert": {}}, f"{FIRST} did not fire"),
        ({"alert": {**LABELS, "window": "1h"}, "lasting": True}, f"{FIRST} did not resolve"),
        ({"log": "started AD-SLOW again"}, "ad.log contains 'ad-slow'"),
    ],
)
def test_what_differs_is_a_problem(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    assert problem in run(tmp_path, FakeShop(**changes)).problems


def test_orders_may_be_late_and_the_burn_of_six_hours_lasts(tmp_path: Path) -> None:
    shop = FakeShop(alert={**LABELS, "window": "6h"}, lasting=True)
    shop.mismatches = lambda: frozenset(["NOT_MAILED"] if shop.acts else [])  # type: ignore[method-assign]
    truth = run(tmp_path, shop)
    assert truth.invariants["during"]["I4"] == "violated"
    assert truth.problems == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": None}, "no customers visit the storefront"),
        ({"before": 1.0}, "the effect of ad-slow is there before it: 1"),
        ({"mismatch": (0, "CHARGED_NOT_SHIPPED")}, "I2 do not hold before the fault"),
        ({"share": 0.5}, "I9 do not hold before the fault"),
    ],
)
def test_nothing_is_injected_into_a_busy_shop(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    shop = FakeShop(**changes)
    with pytest.raises(NotQuiet, match=message):
        run(tmp_path, shop)
    assert shop.injected == []


def test_an_alert_of_a_control_is_a_false_one_unless_an_earlier_incident_burnt_its_budget(tmp_path: Path) -> None:
    spent = frozenset({FIRST})
    assert run(tmp_path, FakeShop(alert={}), QUIET).problems == []
    assert run(tmp_path, FakeShop(), QUIET).problems == [f"the first alert is {FIRST}, not none"]
    assert run(tmp_path, FakeShop(spent=spent), QUIET).problems == run(tmp_path, FakeShop(spent=spent)).problems == []


def firing(name: str, began: float, *, paged: bool = False) -> Firing:
    return Firing(labels={"alertname": name}, began=began, paged_at=began + 30 if paged else None)


@pytest.mark.parametrize(
    ("fired", "problems"),
    [
        ([firing("A", 10, paged=True), firing("B", 20, paged=True), firing("C", 30)], []),
        ([firing("B", 10), firing("A", 20, paged=True)], ["the first alert is B, not A"]),
        ([firing("A", 90, paged=True)], ["A fired after 90 s, not within 60 s"]),
        ([firing("A", 10)], ["the first page is none, not A"]),
        ([firing("A", 10, paged=True), firing("B", 15, paged=True), firing("C", 20, paged=True)], ["C paged"]),
        ([firing("A", 10, paged=True), firing("D", 20)], ["D fired"]),
    ],
)
def test_alerts_are_compared_with_those_expected(fired: list[Firing], problems: list[str]) -> None:
    expected = Expected(first="A", within=60, page="A", may_fire=("B",), must_not_fire=("D",))
    assert list(alert_problems(expected, fired, 0)) == problems


def test_every_mismatch_violates_an_invariant() -> None:
    assert frozenset().union(*INVARIANTS.values()) == frozenset(Kind)


# ---------------------------------------------------------------- game days


def play(folder: Path, shop: FakeShop) -> Truth:
    """Play one fault, from 60 to 260 s after the start of a game, whose record is not readable before its end."""
    record = begun(folder, FAULT, 200)

    def sleep(seconds: float) -> None:
        with pytest.raises(RecordMalformed, match="has not ended"):
            read(record.folder)
        shop.sleep(seconds)

    pace = Pace(clock=lambda: shop.now, sleep=sleep)
    Game((Turn(FAULT, begins=60, seconds=200),), 600, shop, shop.inject, record, pace).run()
    return read(record.folder)[1]


def test_a_seed_repeats_a_schedule_of_different_faults_one_after_the_other() -> None:
    first, same, other = (plan(faults=6, minutes=30, seed=seed) for seed in (7, 7, 8))
    assert first == same
    assert [turn.fault for turn in first] != [turn.fault for turn in other]
    assert len({turn.fault.id for turn in first}) == 6
    times = [moment for turn in first for moment in (turn.begins, turn.begins + turn.seconds)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= 30 * 60


def test_a_schedule_without_time_for_its_faults_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="--minutes: must be at least 4 for each fault"):
        plan(faults=2, minutes=7, seed=7)


def test_a_fault_was_mended_if_its_effect_ended_before_its_time(tmp_path: Path) -> None:
    acts_until_its_end = {"requested": 60, "applied": 60, "effective": 72, "removed": 260}
    assert moments(play(tmp_path, FakeShop(flickers=True))) == acts_until_its_end
    assert moments(play(tmp_path, FakeShop(mended=1_150))) == {**acts_until_its_end, "recovered": 150}


def test_a_fault_that_cannot_act_is_a_problem_and_the_game_goes_on(tmp_path: Path) -> None:
    truth = play(tmp_path, FakeShop(refuses=True))
    assert truth.problems == ["ad-slow: the policy is missing"]
    assert score(truth.faults, []).faults == ()


def test_times_count_from_the_start_of_the_fault_and_answers_without_one_are_wrong() -> None:
    times = {"requested": 1_060, "applied": 1_060, "removed": 1_260, "recovered": 1_200}
    nanos = Times.model_validate({name: moment * SECOND for name, moment in times.items()})
    given = [(1_059, "ad"), (1_100, ""), (1_130, "payment"), (1_160, "ad"), (1_561, "")]
    answers = [Answer(time=moment * SECOND, actor="ada", service=service) for moment, service in given]
    scores = score([InjectedFault(fault=FAULT, seconds=200, times=nanos)], answers)
    (found,) = scores.faults
    assert (found.detected, found.located, found.mended) == (40, 100, 140)
    assert (scores.right, scores.wrong) == (2, 3)


def test_a_game_is_answered_and_then_revealed_with_the_walk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoGameDay):
        gameday.reveal(out=tmp_path)
    folder = tmp_path / play(tmp_path, FakeShop()).id
    (folder / ANSWERS).touch()
    with pytest.raises(InvalidArgument, match="SERVICE: must be one of ad, cart"):
        gameday.answer("nobody", out=tmp_path)
    gameday.answer("payment", by="ada", out=tmp_path)
    gameday.reveal(out=tmp_path)
    shown = capsys.readouterr().out
    assert FAULT.walk[0].answer in shown
    assert FAULT.mitigation in shown
    assert "$in" not in shown
    assert "0 of 1 answer right: precision 0%" in shown
    assert (folder / SCORES).exists()
    with pytest.raises(NoGameDay, match="was revealed: start the next one"):
        gameday.answer("ad", out=tmp_path)
