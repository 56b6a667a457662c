"""Orders survive services that are slow, unreachable, half-open or called twice, with a proxy in front of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from chassis.rpc.client import channel
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.empty_pb2 import Empty
from shop_kit.tcp_proxy import Mode, TcpProxy, tcp_proxy
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, outcomes_of

FAULT_SECONDS = 2.0
RECOVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Network:
    """The proxies to both ports of each service."""

    proxies: Mapping[str, TcpProxy]

    def set_mode(self, mode: Mode, delay_seconds: float = 0.0) -> None:
        for proxy in self.proxies.values():
            proxy.set_mode(mode, delay_seconds)


@asynccontextmanager
async def network_to(testbed: FaultTestbed, *names: str, mode: Mode = "pass") -> AsyncIterator[Network]:
    """Make both checkouts call these services through proxies."""
    processes = [testbed.shop.processes[name] for name in names]
    addresses = {process.program.address_variable: process.address for process in processes} | {
        process.program.internal_address_variable: process.internal_address
        for process in processes
        if process.internal_port
    }
    async with AsyncExitStack() as stack:
        network = Network(
            {name: await stack.enter_async_context(tcp_proxy(address)) for name, address in addresses.items()}
        )
        network.set_mode(mode)
        variables = {name: proxy.address for name, proxy in network.proxies.items()}
        await testbed.configure({"checkout-1": variables, "checkout-2": variables})
        yield network


@pytest.mark.parametrize(
    "mode", ["blackhole", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("half-open", "reset"))]
)
@pytest.mark.parametrize("name", ["payment", "shipping", "cart", "email"])
async def test_orders_are_placed_despite_a_broken_network(testbed: FaultTestbed, name: str, mode: Mode) -> None:
    async with network_to(testbed, name) as network:
        earlier = await testbed.place_orders(testbed.new_intent())
        intents = testbed.new_intent(), testbed.new_intent(keyed=False, checkout=1)
        ordering = asyncio.create_task(testbed.place_orders(*intents))
        network.set_mode(mode)
        await asyncio.sleep(FAULT_SECONDS)
        network.set_mode("pass")
        results = [*earlier, *await ordering]
        assert await testbed.violations(results) == []
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 3


async def test_an_unreachable_payment_delays_a_caller_until_the_deadline_and_no_order_after_it(
    testbed: FaultTestbed,
) -> None:
    async with network_to(testbed, "payment") as network:
        await testbed.place_orders(testbed.new_intent())
        network.set_mode("blackhole")
        intent = testbed.new_intent(max_tries=1)
        started = time.monotonic()
        during = await testbed.place_orders(intent)
        assert time.monotonic() - started < 2 + RECOVERY_SECONDS / 2
        assert during[0].responses[intent.number].reason in {"ORDER_IN_PROGRESS", "DEADLINE_EXCEEDED"}
        network.set_mode("pass")
        started = time.monotonic()
        after = await testbed.place_orders(testbed.new_intent())
        assert time.monotonic() - started < RECOVERY_SECONDS
        assert await testbed.violations([*during, *after]) == []


async def test_a_slow_payment_does_not_slow_down_reads(testbed: FaultTestbed) -> None:
    """Every chunk of bytes, in both directions, is a second late, so payment is far more than ten times slower."""
    async with network_to(testbed, "payment") as network:
        await testbed.place_orders(testbed.new_intent())
        network.set_mode("delay", 1.0)
        intents = [testbed.new_intent() for _ in range(20)]
        ordering = asyncio.create_task(testbed.place_orders(*intents))
        reads = [await timed(lambda: testbed.clients.catalog.ListProducts(Empty())) for _ in range(50)]
        reads += [await timed(lambda: testbed.clients.cart.GetCart(GetCartRequest(user_id="u"))) for _ in range(50)]
        network.set_mode("pass")
        results = await ordering
        assert await testbed.violations(results) == []
    assert sorted(reads)[98] < 1.0


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that a call takes."""
    started = time.monotonic()
    await call()
    return time.monotonic() - started


async def test_orders_whose_every_call_is_delivered_twice_take_effect_once(testbed: FaultTestbed) -> None:
    async with network_to(testbed, "payment", "shipping", "cart", "email", mode="duplicate"):
        intents = [testbed.new_intent(keyed=bool(count % 2), checkout=count % 2) for count in range(20)]
        results = await testbed.place_orders(*intents)
        assert await testbed.violations(results) == []
    assert outcomes_of(results) == [ClientOutcome.PLACED] * 20


async def test_keepalive_pings_of_an_idle_client_do_not_end_its_connection(testbed: FaultTestbed) -> None:
    """The client pings once a second; a server that considers this abuse ends the connection at the third ping."""
    await testbed.configure()
    async with tcp_proxy(testbed.shop.processes["cart"].address) as proxy:
        opened = channel(proxy.address, "shop.CartService", timeout_seconds=5)
        await CartServiceStub(opened).GetCart(GetCartRequest(user_id="u"))
        connections = proxy.connections
        await asyncio.sleep(5)
        await CartServiceStub(opened).GetCart(GetCartRequest(user_id="u"))
        assert proxy.connections == connections
        await opened.close()
