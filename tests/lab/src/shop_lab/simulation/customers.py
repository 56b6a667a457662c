"""The customers of a simulation: those of `shop prove`, but they make planned visits, over the simulated network."""

import asyncio
import random

from typing_extensions import override

from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.simulation.network import Network, on_behalf_of
from shop_lab.simulation.plan import CHECKOUTS, Shopper, Visit
from shop_lab.world.customer_plan import Customer, Intent
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import ClientOutcome, OrderResponse
from shop_lab.world.progress_gate import ProgressGate

_TIMEOUT_SECONDS = 5.0
_SOON_SHARE = 0.8


class SimulatedCustomer(CustomerSimulator):
    """A customer who makes visits.

    Args:
        network: for all calls.
        shopper: the planned visits.
        refusals: whether peers refuse valid orders in this run.
    """

    def __init__(self, network: Network, shopper: Shopper, *, refusals: bool) -> None:
        checkouts = [CheckoutServiceStub(network.channel(name, _TIMEOUT_SECONDS)) for name in CHECKOUTS]
        gate = ProgressGate(lambda _: None)
        super().__init__(CartServiceStub(network.channel("cart", 2.0)), checkouts, gate)
        self._shopper = shopper
        self._refusals = refusals
        self._rivals = {intent for visit in shopper.visits if len(visit.intents) > 1 for intent in visit.intents}

    async def make_visits(self) -> CustomerResult:
        """Make all visits, one after the other."""
        on_behalf_of.set(self._shopper.user_id)
        intents = tuple(intent for visit in self._shopper.visits for intent in visit.intents)
        result = CustomerResult(Customer(self._shopper.user_id, intents))
        result.responses = {intent.number: OrderResponse(ClientOutcome.NOT_SUBMITTED) for intent in intents}
        for visit in self._shopper.visits:
            await asyncio.sleep(max(visit.at - self._now(), 0))
            if visit is self._shopper.visits[0] or await self.wait_until_cart_is_empty(self._shopper.user_id):
                await self._visit(visit, result)
        return result

    async def _visit(self, visit: Visit, result: CustomerResult) -> None:
        if await self.fill_cart(visit.intents[0], result):
            return
        ordering = [
            asyncio.create_task(self._order_after(delay, intent), name=f"order {intent.number}")
            for intent, delay in zip(visit.intents, visit.delays, strict=True)
        ]
        for intent in visit.intents:
            if intent.late_line is not None:
                delay = random.Random(intent.seed).uniform(0, 0.05)  # noqa: S311 - a schedule, not a secret
                await self.add_late_line(intent, intent.late_line, delay, result)
        for intent, task in zip(visit.intents, ordering, strict=True):
            result.responses[intent.number] = await task

    async def _order_after(self, delay_seconds: float, intent: Intent) -> OrderResponse:
        await asyncio.sleep(delay_seconds)
        return await self.order(intent, random.Random(intent.seed))  # noqa: S311 - a schedule, not a secret

    @override
    def pause_seconds(self, intent: Intent, rng: random.Random) -> float:
        return rng.uniform(0.05, 0.5) if rng.random() < _SOON_SHARE else rng.uniform(0, 5)

    @override
    def has_rival(self, intent: Intent) -> bool:
        return intent in self._rivals

    @override
    def may_refuse(self, intent: Intent, reason: str) -> bool:
        return self._refusals or self.has_rival(intent)
