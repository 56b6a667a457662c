"""What brings orders to their end after a fault has faults itself: recovery, the fence, and the release of a charge."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from chassis.errors import FailedPrecondition
from checkout_service import failpoints as checkout
from payment_service import failpoints as payment
from shop import money_pb2, shipping_pb2, shipping_pb2_grpc
from shop_cli.prove.evidence import Told
from shop_cli.prove.plan import Intent
from shop_testkit.scenario import Scene, answers, faulty, owner, until
from shop_testkit.serving import serve


def each(*points: str) -> pytest.MarkDecorator:
    cases = [(point, action) for point in points for action in ("kill", "hang", "error")]
    return pytest.mark.parametrize(("point", "action"), cases)


@pytest.fixture
def shop(sqlite_scene: Scene) -> Scene:
    return sqlite_scene


@each(checkout.TAKEN_OVER, *checkout.RESOLVE, *payment.RESOLVE_OR_FENCE)
async def test_recovery_survives_a_fault(shop: Scene, point: str, action: str) -> None:
    """A checkout dies with charged orders whose customers walk away; what recovers them has the fault."""
    dying, weak = "checkout-1", "payment" if point in payment.FAILPOINTS else "checkout-2"
    await shop.arrange({dying: faulty("checkout.charge.after", "hang", times=2), weak: faulty(point, action, times=2)})
    wishes = shop.wish(keyed=True, max_tries=1), shop.wish(keyed=False, max_tries=1)
    async with shop.revived(weak):
        ordering = asyncio.create_task(shop.play(*wishes))
        await until(lambda: are_charged(shop, wishes))
        shop.stage.shop[dying].kill()
        played = await ordering
        assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.NOTHING] * 2
    assert [shop.captured(wish) for wish in wishes] == [1, 1]


async def are_charged(shop: Scene, wishes: Sequence[Intent]) -> bool:
    return all(shop.captured(wish) == 1 for wish in wishes)


@each(*payment.RESOLVE_OR_FENCE)
async def test_a_fence_survives_a_fault(shop: Scene, point: str, action: str) -> None:
    """A checkout dies before it charges: the key is fenced, and the customer who returns is charged under another."""
    await shop.arrange({"checkout-1": faulty("checkout.charge.before", "kill"), "payment": faulty(point, action)})
    wish = shop.wish(max_tries=1)
    async with shop.revived("payment"):
        played = await shop.play(wish)
        assert await shop.violations(played) == []
    assert shop.captured(wish) == 0
    await shop.arrange()
    played = await shop.play(replace(wish, max_tries=None))
    assert [answer.told for answer in answers(played)] == [Told.PLACED]
    assert await shop.violations(played) == []


@each(*payment.VOID, *checkout.VOID)
async def test_a_charge_is_released_once_shipping_refuses_whatever_fails(shop: Scene, point: str, action: str) -> None:
    weak = owner(point)
    async with refusing_shipping() as address:
        elsewhere = {"SHIPPING_ADDR": address}
        variables = {"checkout-1": elsewhere, "checkout-2": elsewhere}
        await shop.arrange({**variables, weak: {**variables.get(weak, {}), **faulty(point, action)}})
        wish = shop.wish()
        async with shop.revived(weak):
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
