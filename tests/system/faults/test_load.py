"""Overload, and backends that are added and removed."""

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest
import pytest_asyncio
from typing_extensions import override

from chassis.errors import DomainError, ResourceExhausted
from chassis.rpc.client import channel
from chassis.rpc.serving import ServicerContext
from payment_service import failpoints as payment
from shipping_service import failpoints as shipping
from shop.ad_pb2 import Ad, AdRequest, AdResponse
from shop.ad_pb2_grpc import AdServiceServicer, AdServiceStub, add_AdServiceServicer_to_server
from shop.cart_pb2 import AddItemRequest, CartItem
from shop_internal.orders_pb2 import GetOrderRequest, ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2 import ResolveOrFenceRequest
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2 import ResolveShipmentRequest
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub
from shop_kit.serving import serve
from shop_kit.waiting import wait_until
from shop_lab.world.customer_plan import Intent
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, outcomes_of, process_with
from shop_lab.world.tcp_proxy import TcpProxy, tcp_proxy

MAX_CONCURRENT_RPCS = 8
CALLERS = 20 * MAX_CONCURRENT_RPCS
BALANCING_SECONDS = 30.0
PATIENCE_SECONDS = 30.0
CUSTOMERS = 300


@pytest_asyncio.fixture(loop_scope="session")
async def limited(testbed: FaultTestbed) -> FaultTestbed:
    """A testbed whose first checkout sheds calls beyond a low limit."""
    await testbed.configure({"checkout-1": {"MAX_CONCURRENT_RPCS": str(MAX_CONCURRENT_RPCS)}})
    return testbed


async def test_excess_orders_are_shed_with_a_retry_delay_and_without_effect(limited: FaultTestbed) -> None:
    intents = [limited.new_intent() for _ in range(CALLERS)]
    await asyncio.gather(*(fill_cart(limited, intent) for intent in intents))
    calls = (limited.simulator.place_order(intent, timeout_seconds=PATIENCE_SECONDS) for intent in intents)
    results = await asyncio.gather(*calls, return_exceptions=True)
    shed = [error for error in results if isinstance(error, ResourceExhausted)]
    assert shed
    assert all(error.reason == "OVERLOADED" and error.retry_after_seconds for error in shed)
    assert len(results) - len(shed) >= MAX_CONCURRENT_RPCS
    assert not [error for error in results if isinstance(error, BaseException) and error not in shed]
    shed_intents = [intent for intent, result in zip(intents, results, strict=True) if result in shed]
    assert sum(limited.capture_count(intent) for intent in shed_intents) == 0


async def fill_cart(testbed: FaultTestbed, intent: Intent) -> None:
    request = AddItemRequest(user_id=intent.user_id, item=CartItem(product_id=testbed.products[0], quantity=1))
    await testbed.clients.cart.AddItem(request)


async def test_customers_who_retry_after_being_shed_are_all_served_once(limited: FaultTestbed) -> None:
    results = await limited.place_orders(*(limited.new_intent(keyed=bool(count % 2)) for count in range(CALLERS)))
    assert outcomes_of(results) == [ClientOutcome.PLACED] * CALLERS
    assert await limited.violations(results) == []


@pytest.mark.parametrize("point", [payment.BEFORE_CHARGE, shipping.BEFORE_SHIP])
async def test_operators_and_recovery_are_served_while_customers_hang(testbed: FaultTestbed, point: str) -> None:
    """More customers than a port serves wait for a peer that never answers, and hang there too."""
    # With a long lease checkout repeats what gets no answer, and its customers wait for that.
    checkout_variables = {"LEASE_SECONDS": str(PATIENCE_SECONDS)}
    await testbed.configure(
        {process_with(point): failpoint(point, "hang", times=10 * CUSTOMERS), "checkout-1": checkout_variables}
    )
    intents = [testbed.new_intent() for _ in range(CUSTOMERS)]
    await asyncio.gather(*(fill_cart(testbed, intent) for intent in intents))
    calls = (testbed.simulator.place_order(intent, timeout_seconds=PATIENCE_SECONDS) for intent in intents)
    hanging = [asyncio.ensure_future(call) for call in calls]
    await wait_until(lambda: wait_for_peers(testbed, CUSTOMERS - sum(call.done() for call in hanging)))
    async with AsyncExitStack() as stack:
        checkout, ledger, manifest = [
            await stack.enter_async_context(grpc.aio.insecure_channel(testbed.shop.processes[name].internal_address))
            for name in ("checkout-1", "payment", "shipping")
        ]
        listed = await OrderJournalStub(checkout).ListOrders(ListOrdersRequest())
        await OrderJournalStub(checkout).GetOrder(GetOrderRequest(order_id=listed.orders[0].order_id))
        fenced = await PaymentLedgerStub(ledger).ResolveOrFence(ResolveOrFenceRequest(charge_key=str(uuid.uuid4())))
        await ShipmentManifestStub(manifest).ResolveOrFence(ResolveShipmentRequest(shipment_key=str(uuid.uuid4())))
    assert fenced.HasField("fenced")
    assert await testbed.shop.processes["checkout-1"].is_serving()
    assert sum(not call.done() for call in hanging) > CUSTOMERS / 2
    for call in hanging:
        call.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    await testbed.configure()
    await testbed.evidence([])


async def wait_for_peers(testbed: FaultTestbed, count: int) -> bool:
    """Return whether the journal has so many unfinished orders, as the other checkout's operators see it."""
    request = ListOrdersRequest(states=[OrderState.ORDER_STATE_CHARGING], limit=1_000)
    return len((await testbed.clients.journal.ListOrders(request)).orders) >= count


class Backend(AdServiceServicer):
    """Responds with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    async def GetAds(self, request: AdRequest, context: ServicerContext) -> AdResponse:
        return AdResponse(ads=[Ad(text=self.name)])


class Fleet:
    """Backends behind fixed addresses, one proxy each, and a client that calls them continuously."""

    def __init__(self, proxies: list[TcpProxy]) -> None:
        self.proxies = proxies
        self.responses: list[str] = []
        self.errors: list[DomainError] = []
        self._running: dict[int, AsyncExitStack] = {}
        self.backends = [Backend(f"backend {index}") for index in range(len(proxies))]
        self.target = f"ipv4:///{','.join(proxy.address for proxy in proxies)}"
        self.channel = channel(self.target, "shop.AdService", timeout_seconds=5)

    async def start(self, index: int) -> None:
        stack = self._running[index] = AsyncExitStack()
        # The drain gives the client the time to see that the backend is not serving any more.
        served = serve((add_AdServiceServicer_to_server, self.backends[index]), drain_seconds=1, grace_seconds=20)
        address = await stack.enter_async_context(served)
        self.proxies[index].target = address
        self.proxies[index].set_mode("pass")

    async def stop(self, index: int) -> None:
        """Drain and stop a backend; its address then refuses connections."""
        await self._running.pop(index).aclose()
        self.proxies[index].set_mode("reset")

    async def call(self) -> None:
        """Call until cancelled."""
        stub = AdServiceStub(self.channel)
        while True:
            try:
                self.responses.append((await stub.GetAds(AdRequest())).ads[0].text)
            except DomainError as error:
                self.errors.append(error)
            await asyncio.sleep(0.002)

    async def shares(self) -> dict[str, float]:
        """Wait for the next hundred responses and return each backend's share of them."""
        before = len(self.responses)
        await wait_until(lambda: len(self.responses) >= before + 100)
        counts = Counter(self.responses[before : before + 100])
        return {name: count / 100 for name, count in counts.items()}

    async def close(self) -> None:
        for index in list(self._running):
            await self.stop(index)
        await self.channel.close()


@pytest_asyncio.fixture(loop_scope="session")
async def fleet() -> AsyncIterator[Fleet]:
    """One running backend, and two addresses without one."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(tcp_proxy("")) for _ in range(3)]
        for proxy in proxies:
            proxy.set_mode("reset")
        fleet = Fleet(proxies)
        await fleet.start(0)
        yield fleet
        await fleet.close()


async def test_new_backends_get_a_share_of_the_calls_and_removed_ones_fail_none(fleet: Fleet) -> None:
    calling = asyncio.create_task(fleet.call())
    assert await fleet.shares() == {"backend 0": 1.0}
    for index in (1, 2):
        await fleet.start(index)
    await wait_until(lambda: all_have_a_share(fleet), BALANCING_SECONDS)
    for index in (0, 1):
        await fleet.stop(index)
    await fleet.shares()
    assert await fleet.shares() == {"backend 2": 1.0}
    calling.cancel()
    assert fleet.errors == []


async def all_have_a_share(fleet: Fleet) -> bool:
    shares = await fleet.shares()
    return len(shares) == len(fleet.proxies) and min(shares.values()) >= 0.2
