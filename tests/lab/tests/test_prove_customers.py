"""Simulated customers place the orders that were planned for them."""

import asyncio

import pytest
from typing_extensions import override

from chassis.rpc.client import channel
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.order_pb2 import OrderResult
from shop_lab.world.customer_plan import Customer, Intent, Line, valid_intent
from shop_lab.world.customers import CustomerSimulator
from shop_lab.world.evidence import ClientOutcome
from shop_lab.world.progress_gate import ProgressGate

NOWHERE = "127.0.0.1:1"
INTENT = valid_intent(0, "ada", [Line("mug", 1)], "key")
OTHER = valid_intent(1, "ada", [Line("mug", 1)], "another-key")


@pytest.mark.parametrize("devices", [((INTENT, OTHER),), ((INTENT,), (OTHER,))], ids=["in a row", "at once"])
async def test_customers_of_a_run_that_has_failed_skip_their_orders(devices: tuple[tuple[Intent, ...], ...]) -> None:
    gate = ProgressGate(lambda _: None, limit=2)
    opened = channel(NOWHERE, "shop.CheckoutService", timeout_seconds=5)
    simulator = CustomerSimulator(CartServiceStub(opened), [CheckoutServiceStub(opened)], gate, max_unanswered=-1)
    async with asyncio.timeout(10):
        result = await simulator.run(Customer("ada", devices))
    await opened.close()
    assert [response.outcome for response in result.responses.values()] == [ClientOutcome.SKIPPED] * 2
    assert gate.finished == 2


class FailingRun(CustomerSimulator):
    """The simulator of a run that fails while a customer tries for the second time."""

    failed = False

    @property
    @override
    def has_failed(self) -> bool:
        return self.failed

    @override
    async def place_order(self, intent: Intent, tries: int = 0, timeout_seconds: float | None = None) -> OrderResult:
        self.failed = tries > 0
        return await super().place_order(intent, tries, timeout_seconds)


async def test_customers_who_wait_give_up_once_the_run_has_failed() -> None:
    gate = ProgressGate(lambda _: None, limit=1)
    opened = channel(NOWHERE, "shop.CheckoutService", timeout_seconds=5)
    simulator = FailingRun(CartServiceStub(opened), [CheckoutServiceStub(opened)], gate)
    async with asyncio.timeout(10):
        result = await simulator.run(Customer("ada", ((valid_intent(0, "ada", (), "key"),),)))
    await opened.close()
    assert [(response.outcome, response.tries) for response in result.responses.values()] == [
        (ClientOutcome.UNKNOWN, 2)
    ]
