"""An order survives the death of a process at every failpoint on its path.

The first checkout has the failpoint, the second one does not; customers call them in turn. `tests/test_recovery.py` of
checkout, and `tests/test_service.py` of payment and shipping, have hangs and errors.
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
