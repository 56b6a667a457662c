from dataclasses import replace

from shop_lab.simulation.history import Versions
from shop_lab.simulation.model_runs import SCOPE, record_orders, steps_of_orders
from shop_lab.simulation.plan import plan
from shop_lab.simulation.recording import Recorder
from shop_lab.simulation.run import run

SEEDS = 40


def test_recording_changes_nothing_in_a_run() -> None:
    planned = plan(5, SCOPE)
    assert run(planned, Recorder()) == run(planned)


def test_an_order_without_faults_takes_four_steps() -> None:
    quiet = replace(plan(1, SCOPE), faults=(), call_faults=(), slow_rate=0.0, lost_reply_rate=0.0)
    (steps, *_), left_out = steps_of_orders(quiet)
    assert [step["action"] for step in steps] == ["Insert", "Charge", "Ship", "Update"]
    assert left_out == []


def test_nearly_every_order_has_a_counterpart_in_the_model() -> None:
    runs, left_out = record_orders(range(SEEDS))
    assert len(left_out) < len(runs) / 20, left_out


def test_a_version_begins_with_the_event_that_made_it() -> None:
    versions = Versions("old")
    versions.add(3, "new")
    assert [versions.at(event) for event in (2, 3, 4)] == ["old", "new", "new"]
