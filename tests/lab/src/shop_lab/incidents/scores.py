"""What the players of a game day answered, and how good that was."""

import time
from collections.abc import Sequence
from pathlib import Path

from shop_lab.incidents.catalogue import Strict
from shop_lab.incidents.record import InjectedFault, Nanos

ANSWERS, SCORES = "answers.jsonl", "scores.json"
_LATE_SECONDS = 300
"""For so long after its end an answer is still about a fault."""


class Answer(Strict):
    """What a player said, and when: the service at fault, or "" for noticing that something is wrong."""

    time: Nanos
    actor: str
    service: str = ""


class Score(Strict):
    """Seconds from the start of a fault until someone noticed, named and mended it; None for what did not happen."""

    fault: str
    service: str
    detected: float | None = None
    located: float | None = None
    mended: float | None = None


class Scores(Strict):
    """The scores of a game day. `right` answers name a service at fault, or notice a fault; all others are wrong."""

    faults: tuple[Score, ...]
    right: int
    wrong: int


def add_answer(folder: Path, answer: Answer) -> None:
    """Append to the answers of a game day."""
    with (folder / ANSWERS).open("a", encoding="utf-8") as file:
        file.write(answer.model_dump_json() + "\n")


def read_answers(folder: Path) -> list[Answer]:
    """Return the answers of a game day."""
    lines = (folder / ANSWERS).read_text(encoding="utf-8").splitlines()
    return [Answer.model_validate_json(line) for line in lines]


def score(injected: Sequence[InjectedFault], answers: Sequence[Answer]) -> Scores:
    """Return the scores of those faults that were applied."""
    applied = [fault for fault in injected if fault.times.applied]
    right = sum(
        any(_covers(fault, answer) and answer.service in ("", fault.fault.service) for fault in applied)
        for answer in answers
    )
    scores = tuple(_score(fault, [answer for answer in answers if _covers(fault, answer)]) for fault in applied)
    return Scores(faults=scores, right=right, wrong=len(answers) - right)


def _covers(injected: InjectedFault, answer: Answer) -> bool:
    """Return whether an answer came while a fault acted, or soon after."""
    removed = injected.times.removed or time.time_ns()
    return (injected.times.applied or 0) <= answer.time <= removed + _LATE_SECONDS * 10**9


def _score(injected: InjectedFault, answers: Sequence[Answer]) -> Score:
    times, service = injected.times, injected.fault.service
    moments = {
        "detected": min((answer.time for answer in answers), default=None),
        "located": min((answer.time for answer in answers if answer.service == service), default=None),
        "mended": times.recovered,
    }
    since = {name: (moment - (times.applied or 0)) / 1e9 for name, moment in moments.items() if moment is not None}
    return Score(fault=injected.fault.id, service=service, **since)
