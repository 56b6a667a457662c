import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkout_service.journal import sql
from shop_lab.simulation.faults import Fate
from shop_lab.simulation.machine import OrdersUnderFaults
from shop_lab.simulation.simulated_shop import Dialect
from shop_lab.world.customer_plan import Customer, Line, valid_intent

BUYER = Customer("ada", ((valid_intent(0, "ada", [Line("mug", 1)], key=None),),))
TO_EMAIL = ("/shop.internal.Confirmations/AcceptConfirmations", "/shop.EmailService/SendOrderConfirmation")

each_dialect = pytest.mark.parametrize("dialect", Dialect)


@pytest.mark.timeout(0)  # there is no time that a slow machine could not exceed
@pytest.mark.parametrize("runs", [150, pytest.param(3_000, marks=pytest.mark.long)])
def test_orders_survive_all_faults(runs: int) -> None:
    # Hypothesis draws constants of the modules that a process has imported: the same runs need a process of their own.
    code = f"from shop_lab.simulation.machine import simulate; simulate({runs}, derandomize=True)"
    subprocess.run([sys.executable, "-c", code], check=True)


def opened(dialect: Dialect) -> OrdersUnderFaults:
    machine = OrdersUnderFaults()
    machine.open_shop(seed=1, dialect=dialect, early=[BUYER])
    return machine


def simulate(dialect: Dialect) -> list[str]:
    """Simulate an order whose charge and whose checkout meet a fault; return all that happened."""
    machine = opened(dialect)
    machine.calls_meet(path="/shop.PaymentService/Charge", fate=Fate.LOSE_REPLY, after=0, count=1)
    machine.kill(after=0.1, process="checkout-1", seconds=0.3)
    machine.teardown()
    return machine.trace


@each_dialect
def test_the_same_steps_give_the_same_run_in_another_process(dialect: Dialect) -> None:
    # The order of sets and dictionaries of strings depends on the hash seed.
    code = f"import test_simulation as test; print(*test.simulate(test.Dialect('{dialect}')), sep='\\n')"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == simulate(dialect)


def test_orders_without_faults_are_placed() -> None:
    machine = opened(Dialect.SQLITE)
    machine.teardown()
    assert any("ShipOrder" in event for event in machine.trace)


def set_clock_back(dialect: Dialect) -> None:
    """Simulate an order whose e-mail waits in the outbox while the journal's clock is two hours ahead."""
    machine = opened(dialect)
    machine.set_clock(after=0.0, database="checkout", hours=2)
    for path in TO_EMAIL:
        machine.refuse(after=0.0, path=path, kind="ResourceExhausted", seconds=3.0)
    machine.set_clock(after=1.0, database="checkout", hours=-2)
    machine.teardown()


@each_dialect
def test_orders_end_although_a_clock_set_back_leaves_due_times_in_the_future(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_clock_back(dialect)
    monkeypatch.setattr(sql, "MAX_RETRY_DELAY_SECONDS", 1e9)
    with pytest.raises(AssertionError, match="I2: orders were still unfinished"):
        set_clock_back(dialect)
