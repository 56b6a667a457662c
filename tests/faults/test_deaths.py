"""Each process dies at each named point of an order's way, and the order comes to its one end.

The first checkout has the fault, the second one is well; customers ask them in turn.
"""

import pytest

from checkout_service.failpoints import ORDER_PATH
from payment_service.failpoints import CHARGE
from shipping_service.failpoints import FAILPOINTS as SHIPPING
from shop_cli.prove.evidence import Told
from shop_testkit.scenario import Scene, answers, faulty, owner


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "no-key"])
@pytest.mark.parametrize("point", [*ORDER_PATH, *CHARGE, *SHIPPING])
async def test_an_order_survives_a_death(sqlite_scene: Scene, point: str, keyed: bool) -> None:
    shop = sqlite_scene
    await shop.arrange({owner(point): faulty(point, "kill")})
    async with shop.revived(owner(point)) as process:
        starts = process.starts
        played = await shop.play(shop.wish(keyed=keyed))
        assert await shop.violations(played) == []
        assert process.starts > starts
    assert [answer.told for answer in answers(played)] == [Told.PLACED]
