"""Each process hangs or fails at each named point of an order's way, and orders come to their one end.

The first checkout has the fault, the second one is well; customers ask them in turn.
"""

import pytest

from checkout_service.failpoints import ORDER_PATH
from payment_service.failpoints import CHARGE
from shipping_service.failpoints import FAILPOINTS as SHIPPING
from shop_cli.prove.evidence import Told
from shop_testkit.scenario import Scene, answers, faulty, owner


@pytest.mark.parametrize("action", ["hang", "error"])
@pytest.mark.parametrize("point", [*ORDER_PATH, *CHARGE, *SHIPPING])
async def test_orders_with_and_without_a_key_survive_a_fault(sqlite_scene: Scene, point: str, action: str) -> None:
    """Both meet the fault: it is there for the first two to come by."""
    shop = sqlite_scene
    await shop.arrange({owner(point): faulty(point, action, times=2)})
    played = await shop.play(shop.wish(keyed=True), shop.wish(keyed=False))
    assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * 2
