"""A cart loses what an order bought, once, and has whatever its customer adds in the meantime."""

import asyncio

from shop.cart_pb2 import AddItemRequest, CartItem
from shop_internal.orders_pb2 import OrderState
from shop_kit.waiting import wait_until
from shop_lab.world.customer_plan import Intent
from shop_lab.world.fault_testbed import FaultTestbed, failpoint


async def add(testbed: FaultTestbed, intent: Intent, product_id: str, quantity: int) -> None:
    item = CartItem(product_id=product_id, quantity=quantity)
    await testbed.clients.cart.AddItem(AddItemRequest(user_id=intent.user_id, item=item))


async def test_what_is_added_while_the_order_is_placed_remains_and_what_it_bought_goes(testbed: FaultTestbed) -> None:
    await testbed.configure()
    payment, intent = testbed.shop.processes["payment"], testbed.new_intent()
    ordered, other = intent.lines[0].product_id, testbed.products[-1]
    payment.pause()
    try:
        ordering = asyncio.create_task(testbed.place_orders(intent))
        await wait_until(lambda: testbed.is_in_state(intent, OrderState.ORDER_STATE_CHARGING))
        await add(testbed, intent, ordered, 5)
        await add(testbed, intent, other, 1)
    finally:
        payment.resume()
    await ordering
    await wait_until(lambda: testbed.is_in_state(intent, OrderState.ORDER_STATE_DONE))
    assert await testbed.simulator.cart_contents(intent.user_id) == {ordered: 5, other: 1}


async def test_a_removal_that_is_repeated_after_a_death_removes_nothing_more(testbed: FaultTestbed) -> None:
    """The first checkout dies after it has removed the items; the other one repeats that in a refilled cart."""
    await testbed.configure({"checkout-1": failpoint("checkout.empty_cart.after", "kill")})
    dying, other = (testbed.shop.processes[name] for name in testbed.shop.checkouts)
    intent = testbed.new_intent(max_tries=1)
    other.pause()
    try:
        await testbed.place_orders(intent)
        await dying.wait()
        assert await testbed.simulator.cart_contents(intent.user_id) == {}
        for line in intent.lines:
            await add(testbed, intent, line.product_id, line.quantity)
    finally:
        other.resume()
    await wait_until(lambda: testbed.is_in_state(intent, OrderState.ORDER_STATE_DONE))
    refilled = {line.product_id: line.quantity for line in intent.lines}
    assert await testbed.simulator.cart_contents(intent.user_id) == refilled
    await testbed.configure()
