"""Workers that are frozen, slow or dead while another one takes their orders over."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from shop import shipping_pb2, shipping_pb2_grpc
from shop_cli.prove.buying import Bought
from shop_cli.prove.evidence import Told
from shop_cli.prove.plan import Intent
from shop_cli.prove.proxy import proxied
from shop_internal.orders_pb2 import GetOrderRequest, GetOrderResponse, ListOrdersRequest, Order, OrderState
from shop_testkit.scenario import Scene, answers, until
from shop_testkit.serving import serve

TURN_SECONDS = 10.0
POISONED = "Poisoned Well"


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.getfixturevalue(f"{request.param}_scene")
    return found


async def order_of(shop: Scene, wish: Intent) -> Order | None:
    """The newest order of the wish's customer, as the journal has it."""
    listed = await shop.peers.journal.ListOrders(ListOrdersRequest(limit=1_000))
    return next((order for order in listed.orders if order.user_id == wish.user_id), None)


async def history_of(shop: Scene, wish: Intent) -> GetOrderResponse:
    order = await order_of(shop, wish)
    assert order is not None
    return await shop.peers.journal.GetOrder(GetOrderRequest(order_id=order.order_id))


async def is_in(shop: Scene, wish: Intent, *states: OrderState.ValueType) -> bool:
    order = await order_of(shop, wish)
    return order is not None and order.state in states


async def test_a_worker_frozen_past_its_lease_changes_nothing_when_it_goes_on(shop: Scene) -> None:
    """It charged, and hears of it only when another one has long finished its order."""
    async with proxied(shop.stage.shop["payment"].address) as proxy:
        await shop.arrange({"checkout-1": {"PAYMENT_ADDR": proxy.address}})
        warm = await shop.play(shop.wish())
        proxy.set("half-open")
        wish = shop.wish(max_tries=1)
        ordering = asyncio.create_task(shop.play(wish))
        await until(lambda: charged(shop, wish))
        shop.stage.shop["checkout-1"].pause()
        try:
            proxy.set("pass")
            await until(lambda: is_in(shop, wish, OrderState.ORDER_STATE_DONE))
            finished = await history_of(shop, wish)
        finally:
            shop.stage.shop["checkout-1"].resume()
        await ordering
        await shop.stage.shop["checkout-1"].wait_until_serving()
        again = await shop.play(wish)
        assert await shop.violations([*warm, *again]) == []
        assert finished.order.epoch > 1
        assert (await history_of(shop, wish)).history == finished.history


async def charged(shop: Scene, wish: Intent) -> bool:
    return shop.captured(wish) == 1


async def test_two_recovery_loops_finish_each_order_once(shop: Scene) -> None:
    """Both checkouts die with orders in their hands; both take part in the recovery."""
    await shop.arrange()
    payment = shop.stage.shop["payment"]
    payment.pause()
    try:
        wishes = [shop.wish(max_tries=1, at=count % 2) for count in range(30)]
        ordering = asyncio.create_task(shop.play(*wishes))
        await until(lambda: all_begun(shop, wishes))
        for name in shop.stage.checkouts:
            shop.stage.shop[name].kill()
            await shop.stage.shop[name].wait()
    finally:
        payment.resume()
    played = await ordering
    for name in shop.stage.checkouts:
        await shop.stage.shop[name].start()
    for name in shop.stage.checkouts:
        await shop.stage.shop[name].wait_until_serving()
    assert await shop.violations(played) == []
    for wish in wishes:
        steps = [(event.step, event.epoch) for event in (await history_of(shop, wish)).history]
        assert len(steps) == len(set(steps))


async def all_begun(shop: Scene, wishes: list[Intent]) -> bool:
    listed = await shop.peers.journal.ListOrders(ListOrdersRequest(limit=1_000))
    return {wish.user_id for wish in wishes} <= {order.user_id for order in listed.orders}


class PoisonedShipping(shipping_pb2_grpc.ShippingServiceServicer):
    """Passes everything on to shipping, but breaks over one street while it is poisoned."""

    def __init__(self, shipping: shipping_pb2_grpc.ShippingServiceStub) -> None:
        self.poisoned = True
        self._shipping = shipping

    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, context: grpc.aio.ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        return await self._shipping.GetQuote(request)

    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: grpc.aio.ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        if self.poisoned and POISONED in request.address.street_address:
            raise RuntimeError("a bug")
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if key == "idempotency-key"]
        return await self._shipping.ShipOrder(request, metadata=metadata)


@asynccontextmanager
async def poisoned_shipping(shop: Scene) -> AsyncIterator[tuple[PoisonedShipping, str]]:
    async with grpc.aio.insecure_channel(shop.stage.shop["shipping"].address) as opened:
        servicer = PoisonedShipping(shipping_pb2_grpc.ShippingServiceStub(opened))
        async with serve((shipping_pb2_grpc.add_ShippingServiceServicer_to_server, servicer)) as address:
            yield servicer, address


async def test_a_poisoned_order_backs_off_and_blocks_nobody(shop: Scene) -> None:
    async with poisoned_shipping(shop) as (shipping, address):
        elsewhere = {"SHIPPING_ADDR": address}
        await shop.arrange({"checkout-1": elsewhere, "checkout-2": elsewhere})
        wish = shop.wish(max_tries=1)
        poisoned = replace(wish, street=f"{wish.street} {POISONED}")
        await shop.play(poisoned)
        await until(lambda: has_failed(shop, poisoned, times=2))
        played = await until_told(shop, [shop.wish(at=count % 2) for count in range(10)])
        assert await is_in(shop, poisoned, OrderState.ORDER_STATE_CHARGING)
        shipping.poisoned = False
        healed = await shop.play(replace(poisoned, max_tries=None))
        assert await shop.violations([*played, *healed]) == []
    assert [answer.told for answer in answers(healed)] == [Told.PLACED]


async def has_failed(shop: Scene, wish: Intent, times: int) -> bool:
    order = await order_of(shop, wish)
    return order is not None and order.failures >= times


async def until_told(shop: Scene, wishes: list[Intent]) -> list[Bought]:
    """Orders that are all placed, and that no poisoned one holds up."""
    started = time.monotonic()
    played = await shop.play(*wishes)
    assert time.monotonic() - started < TURN_SECONDS
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * len(wishes)
    return played
