import os
import subprocess
import sys
from pathlib import Path

import pytest

from shop_lab.simulation.faults import SHIP_ORDER, Fate, Faults
from shop_lab.simulation.machine import OrdersUnderFaults
from shop_lab.world.customer_plan import Customer, Line, valid_intent

BUYER = Customer("ada", ((valid_intent(0, "ada", [Line("mug", 1)], key=None),),))


@pytest.mark.timeout(0)  # there is no time that a slow machine could not exceed
@pytest.mark.parametrize("runs", [150, pytest.param(3_000, marks=pytest.mark.long)])
def test_orders_survive_all_faults(runs: int) -> None:
    # Hypothesis draws constants of the modules that a process has imported: the same runs need a process of their own.
    code = f"from shop_lab.simulation.machine import simulate; simulate({runs}, derandomize=True)"
    subprocess.run([sys.executable, "-c", code], check=True)


def opened() -> OrdersUnderFaults:
    machine = OrdersUnderFaults()
    machine.open_shop(faults=Faults(seed=1, fates=[Fate.LOSE_REPLY], fate_share=0.5), early=[BUYER])
    return machine


def simulate() -> list[str]:
    """Simulate an order whose calls lose replies and whose checkout is killed; return all that happened."""
    machine = opened()
    machine.kill(after=0.1, process="checkout-1", seconds=0.3)
    machine.teardown()
    return machine.trace


def test_the_same_steps_give_the_same_run_in_another_process() -> None:
    # The order of sets and dictionaries of strings depends on the hash seed.
    code = "import test_simulation; print(*test_simulation.simulate(), sep='\\n')"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    trace = simulate()
    assert done.stdout.splitlines() == trace
    assert any("ShipOrder" in event for event in trace)


def test_a_run_fails_if_a_ledger_is_wrong_in_the_end() -> None:
    machine = opened()
    machine.wait_for(path=SHIP_ORDER, seconds=60)
    machine.loop.run_until_complete(machine.shop.disks["payment"].write(("UPDATE charges SET units = units + 1", {})))
    with pytest.raises(AssertionError, match="I8: order 0 costs"):
        machine.teardown()
