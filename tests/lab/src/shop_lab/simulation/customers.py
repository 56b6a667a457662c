"""The customers of a simulation: those of `shop prove`, over the simulated network."""

import math

from hypothesis import strategies as st
from typing_extensions import override

from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_lab.simulation.network import Network, on_behalf_of
from shop_lab.simulation.services import PRODUCTS
from shop_lab.simulation.simulated_shop import CHECKOUTS
from shop_lab.world.customer_plan import Customer, Intent, plan_customer
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.progress_gate import ProgressGate

_MAX_ORDERS = 3
_LONGEST_DELAY_SECONDS = 8.0


@st.composite
def customers(draw: st.DrawFn, index: int) -> Customer:
    """Draw the customer with this index."""
    rng = draw(st.randoms(note_method_calls=False, use_true_random=False))
    return plan_customer(
        rng, 10 * index, f"user-{index}", PRODUCTS, most_orders=_MAX_ORDERS, longest_delay=_LONGEST_DELAY_SECONDS
    )


class SimulatedCustomers(CustomerSimulator):
    """Simulates all customers.

    Attributes:
        refused: whether peers have refused valid orders, for any reason.
    """

    def __init__(self, network: Network) -> None:
        checkouts = [CheckoutServiceStub(network.channel(name, 5.0)) for name in CHECKOUTS]
        gate = ProgressGate(lambda _: None, limit=math.inf)
        super().__init__(CartServiceStub(network.channel("cart", 2.0)), checkouts, gate)
        self.refused = False

    @override
    async def run(self, customer: Customer) -> CustomerResult:
        on_behalf_of.set(customer.user_id)
        return await super().run(customer)

    @override
    def may_refuse(self, intent: Intent, reason: str) -> bool:
        return self.refused or super().may_refuse(intent, reason)
