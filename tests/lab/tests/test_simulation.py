import os
import random
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from checkout_service.journal import sql
from shop_lab.simulation.plan import ClockJump, Dialect, Fate, Plan, Refusals, plan
from shop_lab.simulation.run import run

SEEDS = 40
RANDOM_SECONDS = 2


def quiet_plan(seed: int) -> Plan:
    """Return a plan without any fault."""
    return replace(plan(seed), faults=(), call_faults=(), slow_rate=0.0, lost_reply_rate=0.0)


@pytest.mark.parametrize("part", range(4))
def test_every_fixed_seed_satisfies_the_invariants(part: int) -> None:
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        assert run(plan(seed)).violations == (), f"python -m shop_lab.simulation --replay --seed {seed}"


def test_random_seeds_satisfy_the_invariants() -> None:
    seed = random.SystemRandom().getrandbits(31)
    until = time.monotonic() + RANDOM_SECONDS
    while time.monotonic() < until:
        assert run(plan(seed)).violations == (), f"python -m shop_lab.simulation --replay --seed {seed}"
        seed += 1


@pytest.mark.parametrize("dialect", Dialect)
def test_a_seed_replays_byte_for_byte(dialect: Dialect) -> None:
    planned = replace(plan(3), dialect=dialect, call_fault_rate=0.2, fates=tuple(Fate))
    assert run(planned) == run(planned)


@pytest.mark.timeout(300)
def test_a_seed_replays_in_another_process() -> None:
    # The order of sets and dictionaries of strings depends on the hash seed.
    command = [sys.executable, "-m", "shop_lab.simulation", "--replay", "--seed", "11"]
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout
    assert printed.partition("\n\n")[0].splitlines() == list(run(plan(11)).trace)


def test_no_process_dies_after_the_faults_have_ended() -> None:
    trace = run(plan(678)).trace
    calm = next(index for index, event in enumerate(trace) if event.endswith(" calm"))
    assert not [event for event in trace[calm:] if " kill " in event]


def test_orders_without_faults_are_placed() -> None:
    report = run(quiet_plan(1))
    assert report.violations == ()
    assert any("ShipOrder" in event for event in report.trace)


def set_back_plan(dialect: Dialect) -> Plan:
    """Return a plan in which e-mails wait in the outbox while the journal's clock is two hours ahead."""
    jumps = (ClockJump(0.0, "checkout", 7_200.0), ClockJump(4.0, "checkout", -7_200.0))
    paths = ("/shop.internal.Confirmations/AcceptConfirmations", "/shop.EmailService/SendOrderConfirmation")
    refusals = (Refusals(0.0, path, "ResourceExhausted", 5.0) for path in paths)
    return replace(quiet_plan(1), dialect=dialect, faults=(*jumps, *refusals))


@pytest.mark.parametrize("dialect", Dialect)
def test_orders_end_although_a_clock_set_back_leaves_due_times_in_the_future(dialect: Dialect) -> None:
    report = run(set_back_plan(dialect))
    assert report.stranded > 0
    assert report.violations == ()


@pytest.mark.parametrize("dialect", Dialect)
def test_orders_would_not_end_if_any_time_in_the_future_counted(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MAX_RETRY_DELAY_SECONDS", 1e9)
    assert {violation.partition(":")[0] for violation in run(set_back_plan(dialect)).violations} >= {"S1"}


def test_random_plans_set_clocks_back_while_orders_are_open() -> None:
    jumping = [seed for seed in range(400) if any(isinstance(fault, ClockJump) for fault in plan(seed).faults)]
    assert len(jumping) > 400 / 8
    assert sum(run(plan(seed)).stranded for seed in jumping[:30]) > 0
