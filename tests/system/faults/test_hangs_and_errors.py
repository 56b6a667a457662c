"""Orders survive a hang or an error at every failpoint on their path.

The first checkout has the failpoint, the second one does not; customers call them in turn.
"""

import pytest

from checkout_service.failpoints import ORDER_PATH
from payment_service.failpoints import CHARGE
from shipping_service.failpoints import SHIP
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, outcomes_of, process_with


@pytest.mark.parametrize("action", [pytest.param("hang", marks=pytest.mark.long), "error"])
@pytest.mark.parametrize("point", [*ORDER_PATH, *CHARGE, *SHIP])
async def test_orders_with_and_without_a_key_survive_a_fault(testbed: FaultTestbed, point: str, action: str) -> None:
    # Active for the first two that reach it, which are the two orders.
    await testbed.configure({process_with(point): failpoint(point, action, times=2)})
    results = await testbed.place_orders(testbed.new_intent(keyed=True), testbed.new_intent(keyed=False))
    assert await testbed.violations(results) == []
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 2
