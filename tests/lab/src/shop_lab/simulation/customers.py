"""The customers of a simulation: those of `shop prove`, over the simulated network."""

import math
import random

from typing_extensions import override

from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.simulation.network import Network, on_behalf_of
from shop_lab.simulation.plan import CHECKOUTS
from shop_lab.world.customer_plan import Customer, Intent
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.progress_gate import ProgressGate

_TIMEOUT_SECONDS = 5.0
_SOON_SHARE = 0.8


class SimulatedCustomer(CustomerSimulator):
    """A planned customer.

    Args:
        network: for all calls.
        refusals: whether peers refuse valid orders in this run.
    """

    def __init__(self, network: Network, *, refusals: bool) -> None:
        checkouts = [CheckoutServiceStub(network.channel(name, _TIMEOUT_SECONDS)) for name in CHECKOUTS]
        gate = ProgressGate(lambda _: None, limit=math.inf)
        super().__init__(CartServiceStub(network.channel("cart", 2.0)), checkouts, gate)
        self._refusals = refusals

    @override
    async def run(self, customer: Customer) -> CustomerResult:
        on_behalf_of.set(customer.user_id)
        return await super().run(customer)

    @override
    def pause_seconds(self, intent: Intent, rng: random.Random) -> float:
        return rng.uniform(0.05, 0.5) if rng.random() < _SOON_SHARE else rng.uniform(0, 5)

    @override
    def may_refuse(self, intent: Intent, reason: str) -> bool:
        return self._refusals or super().may_refuse(intent, reason)
