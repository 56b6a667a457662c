import asyncio

from chassis.rpc.client import channel
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.world.customer_plan import Customer, Line, valid_intent
from shop_lab.world.customers import CustomerSimulator
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.progress_gate import ProgressGate

INTENT = valid_intent(0, "ada", [Line("mug", 1)], "key")
OTHER = valid_intent(1, "ada", [Line("mug", 1)], "another-key")


async def test_customers_of_a_run_that_has_failed_skip_their_orders() -> None:
    gate = ProgressGate(lambda _: None, limit=2)
    opened = channel("127.0.0.1:1", "shop.CheckoutService", timeout_seconds=5)
    simulator = CustomerSimulator(CartServiceStub(opened), [CheckoutServiceStub(opened)], gate, max_unanswered=-1)
    async with asyncio.timeout(60):
        result = await simulator.run(Customer("ada", ((INTENT, OTHER),)))
    await opened.close()
    assert [response.outcome for response in result.responses.values()] == [ClientOutcome.SKIPPED] * 2
    assert gate.finished == 2
