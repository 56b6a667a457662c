"""Runs of the code that TLC takes in the model. `make model` compares them."""

import re

import pytest

from shop_lab.model.runs import WRONG_RUNS, record_runs, wrong_runs
from shop_lab.model.tlc import MODULES, Step

RUNS = 100


@pytest.fixture(scope="module")
def runs() -> list[list[Step]]:
    return record_runs(RUNS)


def test_recorded_runs_take_every_action_that_can_be_compared(runs: list[list[Step]]) -> None:
    (conformance,) = (module for module in MODULES if module.stem == "Conformance")
    actions = set(re.findall(r'a = "(\w+)"', conformance.read_text()))
    assert {step["action"] for run in runs for step in run} == actions


def test_wrong_runs_differ_from_the_recorded_ones(runs: list[list[Step]]) -> None:
    wrong = wrong_runs(runs)
    assert set(wrong) == set(WRONG_RUNS)
    assert not [run for (run,) in wrong.values() if run in runs]
