"""More callers than there is room for, and more or fewer backends than before."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from chassis.client import channel
from chassis.errors import DomainError, ResourceExhausted
from shop.ad_pb2 import Ad, AdRequest, AdResponse
from shop.ad_pb2_grpc import AdServiceServicer, AdServiceStub, add_AdServiceServicer_to_server
from shop.cart_pb2 import AddItemRequest, CartItem
from shop_cli.prove.evidence import Told
from shop_cli.prove.plan import Intent
from shop_cli.prove.proxy import Proxy, proxied
from shop_testkit.scenario import Scene, answers, until
from shop_testkit.serving import serve

ROOM = 8
CALLERS = 20 * ROOM
SHARE_SECONDS = 30.0
PATIENCE_SECONDS = 30.0


@pytest.fixture
def shop(sqlite_scene: Scene) -> Scene:
    return sqlite_scene


async def test_too_many_orders_at_once_are_shed_with_a_hint_and_no_effect(shop: Scene) -> None:
    await shop.arrange({"checkout-1": {"MAX_CONCURRENT_RPCS": str(ROOM)}})
    wishes = [shop.wish() for _ in range(CALLERS)]
    await asyncio.gather(*(fill_cart(shop, wish) for wish in wishes))
    patient = (shop.buyer.ask(wish, timeout_seconds=PATIENCE_SECONDS) for wish in wishes)
    first = await asyncio.gather(*patient, return_exceptions=True)
    shed = [error for error in first if isinstance(error, ResourceExhausted)]
    assert shed
    assert all(error.reason == "OVERLOADED" and error.retry_after_seconds for error in shed)
    assert len(first) - len(shed) >= ROOM
    assert not [error for error in first if isinstance(error, BaseException) and error not in shed]
    untouched = [wish for wish, told in zip(wishes, first, strict=True) if told in shed]
    assert sum(shop.captured(wish) for wish in untouched) == 0


async def fill_cart(shop: Scene, wish: Intent) -> None:
    request = AddItemRequest(user_id=wish.user_id, item=CartItem(product_id=shop.products[0], quantity=1))
    await shop.peers.cart.AddItem(request)


async def test_those_who_were_shed_and_try_again_are_all_served_once(shop: Scene) -> None:
    await shop.arrange({"checkout-1": {"MAX_CONCURRENT_RPCS": str(ROOM)}})
    played = await shop.play(*(shop.wish(keyed=bool(count % 2)) for count in range(CALLERS)))
    assert [answer.told for answer in answers(played)] == [Told.PLACED] * CALLERS
    assert await shop.violations(played) == []


async def test_health_answers_while_orders_are_shed(shop: Scene) -> None:
    await shop.arrange({"checkout-1": {"MAX_CONCURRENT_RPCS": str(ROOM)}})
    async with (
        asyncio.TaskGroup() as tasks,
        grpc.aio.insecure_channel(shop.stage.shop["checkout-1"].address) as opened,
    ):
        tasks.create_task(shop.play(*(shop.wish() for _ in range(CALLERS))))
        states = [(await HealthStub(opened).Check(HealthCheckRequest(), timeout=10)).status for _ in range(20)]
    assert states == [HealthCheckResponse.SERVING] * 20


class Backend(AdServiceServicer):
    """Tells its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def GetAds(self, request: AdRequest, context: grpc.aio.ServicerContext) -> AdResponse:
        return AdResponse(ads=[Ad(text=self.name)])


class Fleet:
    """Backends that come and go behind addresses that stay, and a client that goes on calling."""

    def __init__(self, proxies: list[Proxy]) -> None:
        self.proxies = proxies
        self.heard: list[str] = []
        self.errors: list[DomainError] = []
        self._running: dict[int, AsyncExitStack] = {}
        addresses = ",".join(proxy.address for proxy in proxies)
        self.channel = channel(f"ipv4:///{addresses}", "shop.AdService", timeout_seconds=5)

    async def start(self, index: int) -> None:
        stack = self._running[index] = AsyncExitStack()
        backend = Backend(f"backend {index}")
        address = await stack.enter_async_context(serve((add_AdServiceServicer_to_server, backend), grace_seconds=20))
        self.proxies[index].target = address
        self.proxies[index].set("pass")

    async def stop(self, index: int) -> None:
        """Drain, then be gone."""
        await self._running.pop(index).aclose()
        self.proxies[index].set("reset")

    async def call(self) -> None:
        """Call until cancelled."""
        stub = AdServiceStub(self.channel)
        while True:
            try:
                self.heard.append((await stub.GetAds(AdRequest())).ads[0].text)
            except DomainError as error:
                self.errors.append(error)
            await asyncio.sleep(0.002)

    async def shares(self) -> dict[str, float]:
        """Each backend's part of the next hundred answers."""
        before = len(self.heard)
        await until(lambda: self._has_heard(before + 100))
        counts = Counter(self.heard[before : before + 100])
        return {name: count / 100 for name, count in counts.items()}

    async def _has_heard(self, count: int) -> bool:
        return len(self.heard) >= count

    async def close(self) -> None:
        for index in list(self._running):
            await self.stop(index)
        await self.channel.close()


@pytest_asyncio.fixture(loop_scope="session")
async def fleet() -> AsyncIterator[Fleet]:
    """One backend, and two addresses where none is yet."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(proxied("")) for _ in range(3)]
        for proxy in proxies:
            proxy.set("reset")
        made = Fleet(proxies)
        await made.start(0)
        yield made
        await made.close()


async def test_new_backends_get_their_share_and_those_that_leave_cost_no_call(fleet: Fleet) -> None:
    calling = asyncio.create_task(fleet.call())
    assert await fleet.shares() == {"backend 0": 1.0}
    for index in (1, 2):
        await fleet.start(index)
    await until(lambda: all_have_a_share(fleet), SHARE_SECONDS)
    for index in (0, 1):
        await fleet.stop(index)
    await fleet.shares()
    assert await fleet.shares() == {"backend 2": 1.0}
    calling.cancel()
    assert fleet.errors == []


async def all_have_a_share(fleet: Fleet) -> bool:
    shares = await fleet.shares()
    return len(shares) == len(fleet.proxies) and min(shares.values()) >= 0.2
