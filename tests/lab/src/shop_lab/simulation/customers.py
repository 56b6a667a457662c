"""The customers of a simulation: those of `shop prove`, over the simulated network."""

import math
import random
from dataclasses import replace

from hypothesis import strategies as st
from typing_extensions import override

from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.simulation.network import on_behalf_of
from shop_lab.simulation.services import PRODUCTS
from shop_lab.simulation.simulated_shop import CHECKOUTS, SimulatedShop
from shop_lab.world.customer_plan import Customer, Intent, plan_customer
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.progress_gate import ProgressGate


@st.composite
def customers(draw: st.DrawFn, index: int) -> Customer:
    """Draw the customer with this index."""
    # Shares of rare choices would not be rare if Hypothesis made them.
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))  # noqa: S311 - a schedule, not a secret
    most_orders = draw(st.sampled_from((1, 3, 3, 3)))
    planned = plan_customer(rng, 10 * index, f"user-{index}", PRODUCTS, most_orders=most_orders, longest_delay=8.0)
    (first, *others), *devices = planned.devices
    # Later than some faults.
    first = replace(first, after_seconds=draw(st.sampled_from((0.0, 0.1, 0.3, 1.0, 3.0))))
    return Customer(planned.user_id, ((first, *others), *devices))


class SimulatedCustomers(CustomerSimulator):
    """Simulates all customers of a shop."""

    def __init__(self, shop: SimulatedShop) -> None:
        checkouts = [CheckoutServiceStub(shop.network.channel(name, 5.0)) for name in CHECKOUTS]
        gate = ProgressGate(lambda _: None, limit=math.inf)
        super().__init__(CartServiceStub(shop.network.channel("cart", 2.0)), checkouts, gate)
        self._shop = shop

    @override
    async def run(self, customer: Customer) -> CustomerResult:
        on_behalf_of.set(customer.user_id)
        return await super().run(customer)

    @override
    def may_refuse(self, intent: Intent, reason: str) -> bool:
        return self._shop.refuses or super().may_refuse(intent, reason)
