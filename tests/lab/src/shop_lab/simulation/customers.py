"""The customers of a simulation: those of `shop prove`, over the simulated network."""

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

# Hypothesis would prefer small numbers of a wider range.
SEEDS = st.integers(0, 2**16 - 1)


@st.composite
def customers(draw: st.DrawFn, index: int) -> Customer:
    """Draw the customer with this index."""
    # Shares of rare choices would not be rare if Hypothesis made them.
    rng = random.Random(draw(SEEDS))  # noqa: S311 - a schedule, not a secret
    # Customers with more devices meet more faults than others.
    plans = [
        plan_customer(rng, 10 * index, f"user-{index}", PRODUCTS, most_orders=3, longest_delay=8.0) for _ in range(3)
    ]
    planned = max(plans, key=lambda plan: len(plan.devices))
    (first, *others), *devices = planned.devices
    if (seconds := draw(st.sampled_from((None, 0.0, 0.1, 1.0)))) is not None:
        # All devices order the same cart, with keys of their own, while more is added to it.
        devices = [
            (replace(other, lines=(), after_seconds=seconds, key=f"key-{other.number}"), *further)
            for other, *further in devices
        ]
        first = replace(first, late_line=first.late_line or first.lines[0], contested=True)
    first = replace(
        first,
        # Later than some faults.
        after_seconds=draw(st.sampled_from((0.0, 0.1, 0.3, 1.0, 3.0))),
        # Nobody asks again for an order that is given up.
        max_tries=draw(st.sampled_from((first.max_tries, first.max_tries, 1))),
    )
    return Customer(planned.user_id, ((first, *others), *devices))


class SimulatedCustomers(CustomerSimulator):
    """Simulates all customers of a shop."""

    def __init__(self, shop: SimulatedShop) -> None:
        checkouts = [CheckoutServiceStub(shop.network.channel(name, 5.0)) for name in CHECKOUTS]
        super().__init__(CartServiceStub(shop.network.channel("cart", 2.0)), checkouts)
        self._shop = shop

    @override
    async def run(self, customer: Customer) -> CustomerResult:
        on_behalf_of.set(customer.user_id)
        return await super().run(customer)

    @override
    def may_refuse(self, intent: Intent, reason: str) -> bool:
        return self._shop.refuses or super().may_refuse(intent, reason)
