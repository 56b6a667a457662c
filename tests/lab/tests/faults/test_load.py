"""Overload."""

import asyncio
import uuid
from contextlib import AsyncExitStack

import grpc
import pytest
import pytest_asyncio

from chassis.errors import ResourceExhausted
from payment_service import failpoints as payment
from shipping_service import failpoints as shipping
from shop.cart_pb2 import AddItemRequest, CartItem
from shop_internal.orders_pb2 import GetOrderRequest, ListOrdersRequest, OrderState
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_internal.payment_ledger_pb2 import ResolveOrFenceRequest
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_internal.shipment_manifest_pb2 import ResolveShipmentRequest
from shop_internal.shipment_manifest_pb2_grpc import ShipmentManifestStub
from shop_kit.waiting import wait_until
from shop_lab.world.customer_plan import Intent
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.fault_testbed import FaultTestbed, failpoint, outcomes_of, process_with

MAX_CONCURRENT_RPCS = 8
CALLERS = 20 * MAX_CONCURRENT_RPCS
PATIENCE_SECONDS = 30.0
# A connection has 100 calls at most: fewer customers than that must fill a port.
PORT_LIMIT, CUSTOMERS = {"MAX_CONCURRENT_RPCS": "40"}, 60


@pytest_asyncio.fixture(loop_scope="session")
async def limited(testbed: FaultTestbed) -> FaultTestbed:
    """A testbed whose first checkout sheds calls beyond a low limit."""
    await testbed.configure({"checkout-1": {"MAX_CONCURRENT_RPCS": str(MAX_CONCURRENT_RPCS)}})
    return testbed


async def test_excess_orders_are_shed_with_a_retry_delay_and_without_effect(limited: FaultTestbed) -> None:
    intents = [limited.new_intent() for _ in range(CALLERS)]
    await fill_carts(limited, intents)
    calls = (limited.simulator.place_order(intent, timeout_seconds=PATIENCE_SECONDS) for intent in intents)
    results = await asyncio.gather(*calls, return_exceptions=True)
    shed = [error for error in results if isinstance(error, ResourceExhausted)]
    assert shed
    assert all(error.reason == "OVERLOADED" and error.retry_after_seconds for error in shed)
    assert len(results) - len(shed) >= MAX_CONCURRENT_RPCS
    assert not [error for error in results if isinstance(error, BaseException) and error not in shed]
    shed_intents = [intent for intent, result in zip(intents, results, strict=True) if result in shed]
    assert sum(limited.capture_count(intent) for intent in shed_intents) == 0


async def fill_carts(testbed: FaultTestbed, intents: list[Intent]) -> None:
    slots = asyncio.Semaphore(16)  # cart sheds calls too

    async def fill(intent: Intent) -> None:
        request = AddItemRequest(user_id=intent.user_id, item=CartItem(product_id=testbed.products[0], quantity=1))
        async with slots:
            await testbed.clients.cart.AddItem(request)

    await asyncio.gather(*map(fill, intents))


async def test_customers_who_retry_after_being_shed_are_all_served_once(limited: FaultTestbed) -> None:
    results = await limited.place_orders(*(limited.new_intent(keyed=bool(count % 2)) for count in range(CALLERS)))
    assert outcomes_of(results) == [ClientOutcome.PLACED] * CALLERS
    assert await limited.violations(results) == []


@pytest.mark.parametrize("point", [payment.CHARGE[0], shipping.SHIP[0]])
async def test_operators_and_recovery_are_served_while_customers_hang(testbed: FaultTestbed, point: str) -> None:
    """More customers than a port serves wait for a peer that never answers, and hang there too."""
    # With a long lease checkout repeats what gets no answer, and its customers wait for that.
    checkout_variables = {"LEASE_SECONDS": str(PATIENCE_SECONDS), **PORT_LIMIT}
    hang = {**failpoint(point, "hang", times=10 * CUSTOMERS), **PORT_LIMIT}
    await testbed.configure({process_with(point): hang, "checkout-1": checkout_variables})
    intents = [testbed.new_intent() for _ in range(CUSTOMERS)]
    await fill_carts(testbed, intents)
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
