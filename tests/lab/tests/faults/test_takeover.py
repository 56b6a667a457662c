"""Another checkout takes over the orders of one that is frozen or dead."""

import asyncio

import pytest

from shop_cli.local.processes import Process
from shop_internal.orders_pb2 import GetOrderRequest, GetOrderResponse, ListOrdersRequest, OrderState
from shop_kit.tcp_proxy import tcp_proxy
from shop_kit.waiting import wait_until
from shop_lab.prove.coverage import STALE_WRITE_MESSAGE
from shop_lab.world.customer_plan import Intent
from shop_lab.world.fault_testbed import FaultTestbed


@pytest.fixture(params=["sqlite", "postgres"])
def testbed(request: pytest.FixtureRequest) -> FaultTestbed:
    testbed: FaultTestbed = request.getfixturevalue(f"{request.param}_testbed")
    return testbed


async def journal_history(testbed: FaultTestbed, intent: Intent) -> GetOrderResponse:
    order = await testbed.journal_order(intent)
    assert order is not None
    return await testbed.clients.journal.GetOrder(GetOrderRequest(order_id=order.order_id))


async def test_a_worker_frozen_past_its_lease_changes_nothing_after_it_resumes(testbed: FaultTestbed) -> None:
    """The worker charges, but gets the response only after another worker has finished its order."""
    worker = testbed.shop.processes["checkout-1"]
    async with tcp_proxy(testbed.shop.processes["payment"].address) as proxy:
        await testbed.configure({"checkout-1": {"PAYMENT_ADDR": proxy.address}})
        first, intent = testbed.new_intent(), testbed.new_intent(max_tries=1)
        earlier = await testbed.place_orders(first)
        # A worker that is paused while it writes would block SQLite for the others, too.
        await wait_until(lambda: testbed.is_in_state(first, OrderState.ORDER_STATE_DONE))
        proxy.set_mode("half-open")
        ordering = asyncio.create_task(testbed.place_orders(intent))
        await wait_until(lambda: testbed.capture_count(intent) == 1)
        rejected = stale_writes(worker)
        worker.pause()
        try:
            proxy.set_mode("pass")
            await wait_until(lambda: testbed.is_in_state(intent, OrderState.ORDER_STATE_DONE))
            finished = await journal_history(testbed, intent)
        finally:
            worker.resume()
        await ordering
        await worker.wait_until_serving()
        repeated = await testbed.place_orders(intent)
        assert await testbed.violations([*earlier, *repeated]) == []
        assert finished.order.epoch > 1
        assert (await journal_history(testbed, intent)).history == finished.history
        await wait_until(lambda: stale_writes(worker) > rejected)


def stale_writes(worker: Process) -> int:
    return worker.log_path.read_bytes().count(STALE_WRITE_MESSAGE)


async def test_two_recovery_loops_finish_each_order_once(testbed: FaultTestbed) -> None:
    """Both checkouts die with unfinished orders, and both take part in the recovery."""
    await testbed.configure()
    processes = testbed.shop.processes
    processes["payment"].pause()
    try:
        intents = [testbed.new_intent(max_tries=1, checkout=count % 2) for count in range(30)]
        ordering = asyncio.create_task(testbed.place_orders(*intents))
        await wait_until(lambda: are_in_journal(testbed, intents))
        for name in testbed.shop.checkouts:
            processes[name].kill()
            await processes[name].wait()
    finally:
        processes["payment"].resume()
    results = await ordering
    for name in testbed.shop.checkouts:
        await processes[name].start()
    for name in testbed.shop.checkouts:
        await processes[name].wait_until_serving()
    assert await testbed.violations(results) == []
    for intent in intents:
        steps = [(event.step, event.epoch) for event in (await journal_history(testbed, intent)).history]
        assert len(steps) == len(set(steps))


async def are_in_journal(testbed: FaultTestbed, intents: list[Intent]) -> bool:
    listed = await testbed.clients.journal.ListOrders(ListOrdersRequest(limit=1_000))
    return {intent.user_id for intent in intents} <= {order.user_id for order in listed.orders}
