"""A shop whose payment is cut off or slow, or that gets too many orders, judged by ratios within a run."""

import asyncio
import time
from collections.abc import AsyncIterator
from statistics import median, quantiles

import grpc
import pytest
import pytest_asyncio

from chassis.rpc.status import from_rpc_error
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_cli.local.workspace import discover
from shop_kit.running_shop import RunningShop, order_request, running_shop
from shop_kit.storefront import Visitor
from shop_kit.tcp_proxy import tcp_proxy
from shop_kit.waiting import wait_until

pytestmark = pytest.mark.long
FAULT_SECONDS, CUSTOMERS, MAX_CONCURRENT_RPCS, ORDERS = 15.0, 30, 16, 320
CHARGING = "SELECT 1 FROM orders WHERE state = 'CHARGING'"
Answer = tuple[str, str, float]  # the order's id, or else why the call failed, and how many seconds it took


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own_shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningShop]:
    """A shop for these tests alone, which restart its processes with other settings."""
    async with running_shop(tmp_path_factory.mktemp("own"), discover(), LOG_LEVEL="warning") as started:
        yield started


async def customers(shop: RunningShop, count: int = CUSTOMERS) -> list[PlaceOrderRequest]:
    """Fill the carts of new customers. Return their orders."""
    requests = [order_request() for _ in range(count)]
    for request in requests:
        await shop.fill_cart(request.user_id, lines=1)
    return requests


async def order(shop: RunningShop, request: PlaceOrderRequest, timeout_seconds: float = FAULT_SECONDS / 3) -> Answer:
    """Place an order with a single call, under the user's key."""
    place, metadata = CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder, [("idempotency-key", request.user_id)]
    started, order_id, reason = time.monotonic(), "", ""
    try:
        order_id = (await place(request, timeout=timeout_seconds, metadata=metadata)).order.order_id
    except grpc.aio.AioRpcError as error:
        reason = from_rpc_error(error).reason
    return order_id, reason, time.monotonic() - started


async def order_until_placed(shop: RunningShop, request: PlaceOrderRequest) -> tuple[str, list[str]]:
    """Repeat the call until the order is placed. Return its id, and why calls failed."""
    reasons = []
    while not (answer := await order(shop, request))[0]:
        reasons.append(answer[1])
    return answer[0], reasons


async def test_while_payment_is_cut_off_callers_get_answers_and_then_their_orders(own_shop: RunningShop) -> None:
    payment, checkout = own_shop.processes["payment"], own_shop.processes["checkout"]
    async with tcp_proxy(payment.address) as public, tcp_proxy(payment.internal_address) as internal:
        await checkout.restart(PAYMENT_ADDR=public.address, PAYMENT_INTERNAL_ADDR=internal.address)
        usual_seconds = median([(await order(own_shop, request))[2] for request in await customers(own_shop)])
        during, (after,) = await customers(own_shop), await customers(own_shop, 1)
        public.set_mode("lose")
        internal.set_mode("lose")
        ordering = [asyncio.create_task(order_until_placed(own_shop, request)) for request in during]
        await asyncio.sleep(FAULT_SECONDS)
        public.set_mode("pass")
        internal.set_mode("pass")
        ended = time.monotonic()
        first_id, _, first_seconds = await order(own_shop, after)
        placed = dict(await asyncio.gather(*ordering))
        await own_shop.wait_until_notified()
        assert time.monotonic() < ended + FAULT_SECONDS + 10 * CUSTOMERS * usual_seconds
    reasons = [reason for failed in placed.values() for reason in failed]
    assert reasons.count("DEADLINE_EXCEEDED") < len(reasons) / 2  # checkout answers before its callers give up
    assert [[charge.state for charge in own_shop.charges(key)].count("CHARGED") for key in placed] == [1] * CUSTOMERS
    assert first_id
    assert first_seconds < FAULT_SECONDS / 4 + 10 * usual_seconds


async def test_at_three_times_the_load_the_shop_places_as_many_orders_and_refuses_others(own_shop: RunningShop) -> None:
    await own_shop.processes["checkout"].restart(MAX_CONCURRENT_RPCS=str(MAX_CONCURRENT_RPCS))
    requests = iter(await customers(own_shop, 4 * ORDERS))

    async def order_in_turn() -> list[Answer]:
        return [await order(own_shop, next(requests), FAULT_SECONDS) for _ in range(ORDERS // MAX_CONCURRENT_RPCS)]

    began = time.monotonic()
    turns = await asyncio.gather(*(order_in_turn() for _ in range(MAX_CONCURRENT_RPCS)))
    carried_seconds = time.monotonic() - began
    patience_seconds = 10 * median(seconds for turn in turns for *_, seconds in turn)
    began, ordering = time.monotonic(), []
    for number, request in enumerate(requests):
        ordering.append(asyncio.create_task(order(own_shop, request, patience_seconds)))
        await asyncio.sleep(began + carried_seconds * number / (3 * ORDERS) - time.monotonic())
    answers = await asyncio.gather(*ordering)
    orders_per_second = sum(bool(order_id) for order_id, *_ in answers) / (time.monotonic() - began)
    assert orders_per_second > 0.6 * ORDERS / carried_seconds
    assert median(seconds for _, reason, seconds in answers if reason == "OVERLOADED") < patience_seconds / 3


async def test_pages_that_need_no_payment_are_as_fast_while_orders_wait_for_it(own_shop: RunningShop) -> None:
    await own_shop.processes["payment"].restart(FAILPOINTS="shop.PaymentService/Charge=stall:3")
    await own_shop.processes["checkout"].restart()
    alone, beside = list[float](), list[float]()
    async with Visitor(base_url=f"http://{own_shop.processes['storefront'].address}", timeout=None) as visitor:
        await visitor.add_to_cart()
        for _ in range(3):  # in turns, so that both have the same machine
            ordering = [asyncio.create_task(order(own_shop, request)) for request in await customers(own_shop)]
            await wait_until(lambda: len(own_shop.execute("checkout", CHARGING)) > CUSTOMERS / 2)
            while not any(task.done() for task in ordering):
                beside.append(await visit(visitor))
            await asyncio.gather(*ordering)
            while len(alone) < len(beside):
                alone.append(await visit(visitor))
    assert quantiles(beside, n=100)[98] < 3 * quantiles(alone, n=100)[98]


async def visit(visitor: Visitor) -> float:
    """Look at pages and at the total of the cart. Return how many seconds that takes."""
    started = time.monotonic()
    await asyncio.gather(*map(visitor.page, ("/", "/products/linen-shirt", "/cart")), visitor.checkout_form())
    return time.monotonic() - started
