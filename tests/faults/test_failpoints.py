"""Each process dies, hangs or fails at each named point of its work, and every order comes to its one end.

The first checkout has the fault, the second one is well; customers ask them in turn.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from chassis.errors import FailedPrecondition
from chassis.testing import serve
from checkout_service.points import AROUND, ORDER_PATH, RECOVERY
from checkout_service.saga import Void
from payment_service.service import FAILPOINTS as PAYMENT
from shipping_service.service import FAILPOINTS as SHIPPING
from shop import money_pb2, shipping_pb2, shipping_pb2_grpc
from shop_cli.prove.evidence import Told
from shop_cli.prove.scene import Scene, answers

ACTIONS = ("kill", "hang", "error")
KEYED = pytest.mark.parametrize("keyed", [True, False], ids=["key", "no-key"])
VOIDING = AROUND[Void]


def each_point(points: Sequence[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("point", "action"), [(point, action) for point in points for action in ACTIONS])


def once(point: str, action: str) -> dict[str, str]:
    return {"FAILPOINTS": f"{point}={action}*1"}


@pytest.fixture
def shop(sqlite_scene: Scene) -> Scene:
    return sqlite_scene


@KEYED
@each_point(ORDER_PATH)
async def test_an_order_survives_a_fault_in_checkout(shop: Scene, point: str, action: str, keyed: bool) -> None:
    await shop.arrange({"checkout-1": once(point, action)})
    async with shop.revived("checkout-1"):
        played = await shop.play(shop.wish(keyed=keyed))
        assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.PLACED]


@KEYED
@each_point([*PAYMENT[:2], *SHIPPING])
async def test_an_order_survives_a_fault_in_a_peer(shop: Scene, point: str, action: str, keyed: bool) -> None:
    peer = point.partition(".")[0]
    await shop.arrange({peer: once(point, action)})
    async with shop.revived(peer):
        played = await shop.play(shop.wish(keyed=keyed))
        assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.PLACED]


@KEYED
@each_point([point for point in (*RECOVERY, *PAYMENT[2:4]) if point not in VOIDING])
async def test_recovery_survives_a_fault(shop: Scene, point: str, action: str, keyed: bool) -> None:
    """A checkout dies with an order whose customer walks away; what recovers the order has the fault."""
    faulty = "payment" if point.startswith("payment") else "checkout-2"
    await shop.arrange({"checkout-1": once("checkout.charged", "kill"), faulty: once(point, action)})
    wish = shop.wish(keyed=keyed, max_tries=1)
    async with shop.revived(faulty):
        played = await shop.play(wish)
        assert [answer.told for answer in answers(played)] == [Told.NOTHING]
        assert await shop.violations(played) == []
    assert shop.captured(wish) == 1


@each_point([*PAYMENT[2:4]])
async def test_a_fence_survives_a_fault(shop: Scene, point: str, action: str) -> None:
    """A checkout dies before it charges: the key is fenced, and the customer who returns is charged under another."""
    await shop.arrange({"checkout-1": once("checkout.before_charge", "kill"), "payment": once(point, action)})
    wish = shop.wish(max_tries=1)
    async with shop.revived("payment"):
        played = await shop.play(wish)
        assert await shop.violations(played) == []
    assert shop.captured(wish) == 0
    await shop.arrange()
    played = await shop.play(wish)
    assert [answer.told for answer in answers(played)] == [Told.PLACED]
    assert await shop.violations(played) == []


@each_point([*PAYMENT[4:], *VOIDING])
async def test_a_charge_is_released_once_shipping_refuses_whatever_fails(shop: Scene, point: str, action: str) -> None:
    faulty = "payment" if point.startswith("payment") else "checkout-1"
    async with refusing_shipping() as address:
        elsewhere = {"SHIPPING_ADDR": address}
        variables = {"checkout-1": elsewhere, "checkout-2": elsewhere}
        await shop.arrange({**variables, faulty: {**variables.get(faulty, {}), **once(point, action)}})
        wish = shop.wish()
        async with shop.revived(faulty):
            played = await shop.play(wish)
            await shop.evidence(played)
    assert [answer.told for answer in answers(played)] == [Told.REFUSED]
    assert [charge.state for charge in shop.charges(wish)] == ["VOIDED"]


class RefusingShipping(shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes, and then ships nothing."""

    async def GetQuote(self, request: shipping_pb2.GetQuoteRequest, context: object) -> shipping_pb2.GetQuoteResponse:
        return shipping_pb2.GetQuoteResponse(cost_usd=money_pb2.Money(currency_code="USD", units=5))

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: object
    ) -> shipping_pb2.ShipOrderResponse:
        raise FailedPrecondition("no van goes there", reason="NO_SUCH_PLACE")


@asynccontextmanager
async def refusing_shipping() -> AsyncIterator[str]:
    register = shipping_pb2_grpc.add_ShippingServiceServicer_to_server
    async with serve((register, RefusingShipping())) as address:
        yield address
