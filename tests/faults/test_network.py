"""Peers that are slow, silent, half-open or reached twice, by way of a proxy between checkout and the peer."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from chassis.client import channel
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.empty_pb2 import Empty
from shop.money_pb2 import Money
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.commands.order import card_info
from shop_cli.prove.buying import to_request
from shop_cli.prove.evidence import Told
from shop_cli.prove.ledgers import read_charges, read_manifest
from shop_cli.prove.proxy import Mode, Proxy, proxied
from shop_testkit.scenario import Scene, answers, until

TROUBLE_SECONDS = 2.0
NORMAL_AGAIN_SECONDS = 10.0
DELIVERIES = 1_000
AT_ONCE = 32


@pytest.fixture
def shop(sqlite_scene: Scene) -> Scene:
    return sqlite_scene


@asynccontextmanager
async def between(shop: Scene, *peers: str, mode: Mode = "pass") -> AsyncIterator[list[Proxy]]:
    """A proxy before each of the peers, for both checkouts."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(proxied(shop.stage.shop[peer].address)) for peer in peers]
        for proxy in proxies:
            proxy.set(mode)
        variables = {f"{peer.upper()}_ADDR": proxy.address for peer, proxy in zip(peers, proxies, strict=True)}
        await shop.arrange({"checkout-1": variables, "checkout-2": variables})
        yield proxies


@pytest.mark.parametrize("mode", ["blackhole", "half-open", "reset"])
@pytest.mark.parametrize("peer", ["payment", "shipping", "cart", "email"])
async def test_orders_come_to_their_end_over_a_broken_network(shop: Scene, peer: str, mode: Mode) -> None:
    async with between(shop, peer) as (proxy,):
        before = await shop.play(shop.wish())
        ordering = asyncio.create_task(shop.play(shop.wish(), shop.wish(keyed=False, at=1)))
        proxy.set(mode)
        await asyncio.sleep(TROUBLE_SECONDS)
        proxy.set("pass")
        played = [*before, *await ordering]
        assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * 3


async def test_a_silent_payment_costs_a_caller_no_more_than_the_deadline(shop: Scene) -> None:
    async with between(shop, "payment") as (proxy,):
        await shop.play(shop.wish())
        proxy.set("blackhole")
        wish = shop.wish(max_tries=1)
        started = time.monotonic()
        (bought,) = await shop.play(wish)
        assert time.monotonic() - started < 2 + NORMAL_AGAIN_SECONDS / 2
        assert bought.answers[wish.number].reason in {"ORDER_IN_PROGRESS", "DEADLINE_EXCEEDED"}


async def test_orders_are_as_fast_as_ever_soon_after_a_peer_is_heard_again(shop: Scene) -> None:
    async with between(shop, "payment") as (proxy,):
        await shop.play(shop.wish())
        proxy.set("blackhole")
        during = await shop.play(shop.wish(max_tries=2))
        proxy.set("pass")
        started = time.monotonic()
        played = await shop.play(shop.wish())
        assert time.monotonic() - started < NORMAL_AGAIN_SECONDS
        assert await shop.violations([*during, *played]) == []


async def test_a_slow_payment_slows_no_reader(shop: Scene) -> None:
    """Far more than ten times as slow: every chunk of bytes, both ways, a second late."""
    async with between(shop, "payment") as (proxy,):
        await shop.play(shop.wish())
        proxy.set("delay", 1.0)
        wishes = [shop.wish() for _ in range(20)]
        ordering = asyncio.create_task(shop.play(*wishes))
        reads = [await timed(lambda: shop.peers.catalog.ListProducts(Empty())) for _ in range(50)]
        reads += [await timed(lambda: shop.peers.cart.GetCart(GetCartRequest(user_id="u"))) for _ in range(50)]
        proxy.set("pass")
        played = await ordering
        assert await shop.violations(played) == []
    assert sorted(reads)[98] < 1.0


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = time.monotonic()
    await call()
    return time.monotonic() - started


async def test_orders_whose_every_call_is_delivered_twice_have_their_effects_once(shop: Scene) -> None:
    async with between(shop, "payment", "shipping", "cart", "email", mode="duplicate"):
        played = await shop.play(*(shop.wish(keyed=bool(count % 2), at=count % 2) for count in range(20)))
        assert await shop.violations(played) == []
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * 20


@asynccontextmanager
async def doubled(shop: Scene, name: str) -> AsyncIterator[Callable[[str], object]]:
    """A channel whose calls are all delivered twice."""
    await shop.arrange()
    async with proxied(shop.stage.shop[name].address) as proxy:
        proxy.set("duplicate")
        opened = channel(proxy.address, f"shop.{name.capitalize()}Service", timeout_seconds=20)
        try:
            yield opened
        finally:
            await opened.close()


async def each_key(call: Callable[[tuple[tuple[str, str], ...]], Awaitable[object]], prefix: str) -> None:
    """Make many calls, each under a key of its own, some of them at once."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            await call((("idempotency-key", f"{prefix}-{number}"),))

    async with asyncio.TaskGroup() as tasks:
        for number in range(DELIVERIES):
            tasks.create_task(one(number))


async def test_charges_delivered_twice_are_made_once(shop: Scene) -> None:
    request = ChargeRequest(amount=Money(currency_code="EUR", units=5), credit_card=card_info())
    async with doubled(shop, "payment") as opened:
        await each_key(lambda key: PaymentServiceStub(opened).Charge(request, metadata=key), "twice")
    charges = [charge for charge in read_charges(shop.stage.payment_url) if charge.key.startswith("twice-")]
    assert len(charges) == DELIVERIES


async def test_shipments_delivered_twice_are_made_once(shop: Scene) -> None:
    wish = shop.wish()
    request = ShipOrderRequest(address=to_request(wish).address, items=[CartItem(product_id="p", quantity=1)])
    async with doubled(shop, "shipping") as opened:
        await each_key(lambda key: ShippingServiceStub(opened).ShipOrder(request, metadata=key), "twice")
    shipments = [shipment for street, shipment in read_manifest(shop.stage.manifest) if street == wish.street]
    assert len({shipment.tracking_id for shipment in shipments}) == DELIVERIES


async def test_additions_delivered_twice_are_made_once(shop: Scene) -> None:
    user_id = shop.wish().user_id
    request = AddItemRequest(user_id=user_id, item=CartItem(product_id="p", quantity=1))
    async with doubled(shop, "cart") as opened:
        await each_key(lambda key: CartServiceStub(opened).AddItem(request, metadata=key), "twice")
    assert await shop.buyer.left_in_cart(user_id) == {"p": DELIVERIES}


async def test_additions_without_a_key_count_at_each_delivery(shop: Scene) -> None:
    """So what the tests above count is delivered twice indeed."""
    user_id = shop.wish().user_id
    request = AddItemRequest(user_id=user_id, item=CartItem(product_id="p", quantity=1))
    async with doubled(shop, "cart") as opened:
        await CartServiceStub(opened).AddItem(request)
        await until(lambda: has_in_cart(shop, user_id, 2))


async def has_in_cart(shop: Scene, user_id: str, quantity: int) -> bool:
    return await shop.buyer.left_in_cart(user_id) == {"p": quantity}


async def test_a_quiet_client_that_asks_for_signs_of_life_is_not_sent_away(shop: Scene) -> None:
    """It asks once a second; a server that takes this for abuse ends the connection at the third time."""
    await shop.arrange()
    async with proxied(shop.stage.shop["cart"].address) as proxy:
        opened = channel(proxy.address, "shop.CartService", timeout_seconds=5)
        await CartServiceStub(opened).GetCart(GetCartRequest(user_id="u"))
        connections = proxy.connections
        await asyncio.sleep(5)
        await CartServiceStub(opened).GetCart(GetCartRequest(user_id="u"))
        assert proxy.connections == connections
        await opened.close()
