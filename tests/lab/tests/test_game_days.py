"""A game day hides its schedule, notes what happens, and scores what players answer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chassis.errors import InvalidArgument
from shop_lab.incidents import gameday
from shop_lab.incidents.alerts import Firing
from shop_lab.incidents.catalogue import Bounds, Effect, Fault, Where, find, load_all
from shop_lab.incidents.game import Game, Turn, plan
from shop_lab.incidents.gameday import NoGameDay
from shop_lab.incidents.readings import Readings
from shop_lab.incidents.record import InjectedFault, Load, Plan, Record, RecordMalformed, Times, Truth, read
from shop_lab.incidents.run import Pace
from shop_lab.incidents.scores import ANSWERS, SCORES, Answer, add_answer, read_answers, score
from shop_lab.incidents.targets import CannotAct

FAULT = find("ad-slow")
KINDS: frozenset[Where] = frozenset({"local", "cluster"})
SECOND = 10**9


@dataclass
class Shop(Readings):
    """A shop whose fault acts ten seconds after its start, until it is removed or, at a time, mended."""

    mended: float = 1e9
    flickers: bool = False
    refuses: bool = False
    now: float = 1_000.0
    injected: list[tuple[str, float]] = field(default_factory=list)
    began: float = 1e9

    @contextmanager
    def inject(self, fault: Fault, seconds: float) -> Iterator[None]:
        if self.refuses:
            raise CannotAct("the policy is missing")
        self.injected.append((fault.id, self.now))
        self.began = self.now
        yield
        self.began = 1e9

    def effect(self, _effect: Effect) -> float | None:
        acts = self.began + 10 <= self.now < self.mended and not (self.flickers and self.now % 60 == 10)
        return 1.0 if acts else 0.0

    def bounds(self, effect: Effect) -> Bounds:
        return effect

    def failed_share(self) -> float | None:
        return 0.0

    def mismatches(self) -> Mapping[str, int] | None:
        return {}

    def firings(self, _since: float) -> Sequence[Firing]:
        return ()

    def visible(self) -> Mapping[str, str]:
        return {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def played(folder: Path, shop: Shop) -> Truth:
    """Play one fault, from 60 to 260 s after the start."""
    turns = (Turn(FAULT, begins=60, seconds=200),)
    decided = Plan(faults=(FAULT.id,), seconds=(200,), seed=7)
    record = Record(folder, decided, "cluster")
    truth = Truth(id=record.id, plan=decided, where="cluster", versions={}, load=Load(source="chart"))
    pace = Pace(clock=lambda: shop.now, sleep=shop.sleep)
    Game(turns, 600, shop, shop.inject, record, truth, pace).run()
    return read(record.folder)[1]


def times(truth: Truth) -> dict[str, float]:
    """Return the moments of the fault, in seconds since the start."""
    found = truth.faults[0].times.model_dump(exclude_none=True)
    return {name: round(nanos / SECOND) - 1_000 for name, nanos in found.items()}


def test_a_seed_always_gives_the_same_schedule_and_others_another_one() -> None:
    schedules = [plan(list(load_all().values()), KINDS, faults=1, minutes=30, seed=seed) for seed in (7, 7, 8)]
    assert schedules[0] == schedules[1]
    assert schedules[1] != schedules[2]


def test_faults_of_a_schedule_differ_and_follow_each_other_within_its_time() -> None:
    faults = [FAULT.model_copy(update={"id": f"fault-{number}"}) for number in range(6)]
    turns = plan(faults, KINDS, faults=6, minutes=30, seed=7)
    assert len({turn.fault.id for turn in turns}) == 6
    moments = [moment for turn in turns for moment in (turn.begins, turn.begins + turn.seconds)]
    assert moments == sorted(moments)
    assert 0 <= moments[0] < moments[-1] <= 30 * 60


@pytest.mark.parametrize(("option", "faults", "minutes"), [("--faults", 99, 999), ("--minutes", 1, 3)])
def test_a_schedule_that_cannot_be_is_refused_by_the_name_of_its_option(
    option: str, faults: int, minutes: float
) -> None:
    with pytest.raises(InvalidArgument, match=option):
        plan(list(load_all().values()), KINDS, faults=faults, minutes=minutes, seed=7)


def test_a_fault_that_acts_until_its_end_was_not_mended(tmp_path: Path) -> None:
    assert times(played(tmp_path, Shop(flickers=True))) == {
        "requested": 60,
        "applied": 60,
        "effective": 72,
        "removed": 260,
    }


def test_a_fault_whose_effect_ends_before_its_time_was_mended(tmp_path: Path) -> None:
    assert times(played(tmp_path, Shop(mended=1_150)))["recovered"] == 150


def test_a_fault_that_cannot_act_is_a_problem_and_the_game_goes_on(tmp_path: Path) -> None:
    truth = played(tmp_path, Shop(refuses=True))
    assert truth.problems == ("ad-slow: the policy is missing",)
    assert score(truth.faults, []).faults == ()


def injected(applied: int, removed: int, recovered: int | None = None) -> InjectedFault:
    moments = {"requested": applied, "applied": applied, "removed": removed, "recovered": recovered}
    nanos = {name: moment * SECOND for name, moment in moments.items() if moment is not None}
    return InjectedFault(fault=FAULT, seconds=200, times=Times.model_validate(nanos))


def answers(*given: tuple[int, str]) -> list[Answer]:
    return [Answer(time=moment * SECOND, actor="ada", service=service) for moment, service in given]


def test_times_count_from_the_start_of_the_fault() -> None:
    given = answers((1_100, ""), (1_130, "payment"), (1_160, "ad"))
    scores = score([injected(1_060, 1_260, 1_200)], given)
    (found,) = scores.faults
    assert (found.detected, found.located, found.mended) == (40, 100, 140)
    assert (scores.right, scores.wrong) == (2, 1)


@pytest.mark.parametrize("moment", [1_059, 1_561])
def test_an_answer_without_a_fault_is_wrong(moment: int) -> None:
    scores = score([injected(1_060, 1_260)], answers((moment, "ad"), (moment, "")))
    assert (scores.faults[0].detected, scores.right) == (None, 0)


def test_answers_are_read_as_they_were_given(tmp_path: Path) -> None:
    given = answers((1, ""), (2, "ad"))
    for answer in given:
        add_answer(tmp_path, answer)
    assert read_answers(tmp_path) == given


def test_a_game_is_answered_and_then_revealed_with_the_walk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoGameDay):
        gameday.reveal(out=tmp_path)
    truth = played(tmp_path, Shop())
    (tmp_path / truth.id / ANSWERS).touch()
    with pytest.raises(InvalidArgument, match="SERVICE: must be one of ad, cart"):
        gameday.answer("nobody", out=tmp_path)
    gameday.answer("payment", by="ada", out=tmp_path)
    gameday.reveal(out=tmp_path)
    shown = capsys.readouterr().out
    assert FAULT.walk[0].answer in shown
    assert FAULT.mitigation in shown
    assert "$in" not in shown
    assert "0 of 1 answer right: precision 0%" in shown
    assert (tmp_path / truth.id / SCORES).exists()
    with pytest.raises(NoGameDay, match="was revealed: start the next one"):
        gameday.answer("ad", out=tmp_path)


@dataclass
class Spied(Shop):
    """A shop whose records somebody wants to read while the game runs."""

    records: Path = Path()
    refused: int = 0

    def sleep(self, seconds: float) -> None:
        with pytest.raises(RecordMalformed, match="has not ended"):
            read(next(self.records.iterdir()))
        self.refused += 1
        super().sleep(seconds)


def test_a_game_that_runs_is_not_revealed(tmp_path: Path) -> None:
    shop = Spied(records=tmp_path)
    played(tmp_path, shop)
    assert shop.refused
