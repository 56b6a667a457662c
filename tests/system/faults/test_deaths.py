"""An order survives the death of a process, a hang or an error at every failpoint on its path.

The first checkout has the failpoint, the second one does not; customers call them in turn.
"""

import pytest

from checkout_service.failpoints import ORDER_PATH
from payment_service.failpoints import CHARGE
from shipping_service.failpoints import SHIP
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, outcomes_of, process_with

POINTS = (*ORDER_PATH, *CHARGE, *SHIP)
# A death before a step leaves behind what a death after the previous step does, so `make test` has the latter only.
DEATHS = [
    pytest.param(point, keyed, marks=() if keyed and point.endswith(".after") else pytest.mark.long)
    for point in POINTS
    for keyed in (True, False)
]


@pytest.mark.parametrize(("point", "keyed"), DEATHS)
async def test_an_order_survives_a_death(testbed: FaultTestbed, point: str, keyed: bool) -> None:
    victim = process_with(point)
    await testbed.configure({victim: failpoint(point, "kill")})
    async with testbed.restarted_on_exit(victim) as process:
        starts = process.starts
        results = await testbed.place_orders(testbed.new_intent(keyed=keyed))
        assert await testbed.violations(results) == []
        assert process.starts > starts
    assert outcomes_of(results) == [ClientOutcome.PLACED]


# `make test` has these faults in checkout's own process: services/checkout/tests/test_recovery.py.
@pytest.mark.long
@pytest.mark.parametrize("action", ["hang", "error"])
@pytest.mark.parametrize("point", POINTS)
async def test_orders_with_and_without_a_key_survive_a_fault(testbed: FaultTestbed, point: str, action: str) -> None:
    # Active for the first two that reach it, which are the two orders.
    await testbed.configure({process_with(point): failpoint(point, action, times=2)})
    results = await testbed.place_orders(testbed.new_intent(keyed=True), testbed.new_intent(keyed=False))
    assert await testbed.violations(results) == []
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 2
