"""Customers of a simulated shop, and the faults that befall it, as Hypothesis chooses them."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, close, deterministic, errors_in_trace
from shop_lab.simulation.customers import SimulatedCustomers, customers
from shop_lab.simulation.faults import Fate, Faults
from shop_lab.simulation.outcome import violations_in_the_end
from shop_lab.simulation.processes import create_task
from shop_lab.simulation.simulated_shop import DATABASES, PROCESSES, Dialect, SimulatedShop
from shop_lab.world.customer_plan import Customer
from shop_lab.world.customers import CustomerResult

CHARGE, SHIP_ORDER = "/shop.PaymentService/Charge", "/shop.ShippingService/ShipOrder"
EFFECTS = (
    CHARGE,
    SHIP_ORDER,
    "/shop.internal.PaymentLedger/ResolveOrFence",
    "/shop.internal.PaymentLedger/Void",
    "/shop.internal.ShipmentManifest/ResolveOrFence",
    "/shop.internal.Confirmations/AcceptConfirmations",
    "/shop.EmailService/SendOrderConfirmation",
    "/shop.CartService/EmptyCart",
    "/shop.internal.OrderedCart/RemoveAllOrdered",
    "/shop.internal.OrderedCart/RemoveOrdered",
)
# Charges and shipments are hit most often: they must happen once.
CALLS = st.sampled_from(
    (CHARGE, SHIP_ORDER, *EFFECTS, CHARGE, SHIP_ORDER, "/shop.CheckoutService/PlaceOrder", "/shop.CartService/AddItem")
)
REFUSALS = ("FailedPrecondition", "InvalidArgument", "Unimplemented", "NotFound", "Internal", "ResourceExhausted")
MAX_CUSTOMERS = 4
SOON = st.sampled_from((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
SECONDS = st.sampled_from((0.1, 0.5, 2.0, 6.0))
EFFECT, PROCESS, DATABASE = st.sampled_from(EFFECTS), st.sampled_from(PROCESSES), st.sampled_from(DATABASES)


def happens(to_shop: Callable[..., None], **arguments: Any) -> Callable[..., None]:
    """Return a rule by which something happens to the shop a little later."""

    def happen(self: "OrdersUnderFaults", after: float, **given: Any) -> None:
        self.wait(after)
        to_shop(self.shop, **given)

    happen.__name__ = to_shop.__name__
    become_rule: Callable[[Callable[..., None]], Callable[..., None]] = rule(after=SOON, **arguments)
    return become_rule(happen)


def calls_meet(fate: Fate) -> Callable[..., None]:
    """Return a rule by which some of the next calls of a method meet a fate."""

    def meet(self: "OrdersUnderFaults", path: str, after: int, count: int) -> None:
        self.shop.faults.fates[path].extend([None] * after + [fate] * count)

    meet.__name__ = fate.value
    return rule(path=CALLS, after=st.integers(0, 3), count=st.integers(1, 3))(meet)


class OrdersUnderFaults(RuleBasedStateMachine):
    """Every step schedules something, or lets time pass; after the last step the faults end, and the invariants hold.

    Attributes:
        trace: everything that happened, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trace: list[str] = []
        self.visits: list[asyncio.Task[CustomerResult]] = []
        self._exit = ExitStack()

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        dialect=st.sampled_from(Dialect),
        slow_share=st.sampled_from((0.0, 0.02, 0.1)),
        lost_reply_share=st.sampled_from((0.0, 0.0, 0.02)),
        retention=st.sampled_from((False, False, True)),
        loses_commits=st.sampled_from((False, False, False, True)),
        early=st.integers(1, 3).flatmap(lambda count: st.tuples(*map(customers, range(count)))),
    )
    def open_shop(
        self,
        *,
        seed: int,
        dialect: Dialect,
        early: Sequence[Customer],
        slow_share: float = 0.0,
        lost_reply_share: float = 0.0,
        retention: bool = False,
        loses_commits: bool = False,
    ) -> None:
        self.loop = VirtualLoop()
        self.loop.set_task_factory(create_task)
        services.load_schemas()
        self._exit.enter_context(deterministic(self.loop))
        self._exit.enter_context(errors_in_trace(self.trace))
        self._exit.callback(close, self.loop)
        # Little can be said about the orders of a journal that loses some.
        self.loses_commits = loses_commits
        faults = Faults(seed, slow_share, lost_reply_share)
        self.shop = SimulatedShop(self.loop, faults, self.trace, dialect, retention=retention)
        self._exit.callback(self.shop.stop_all)
        self.simulator = SimulatedCustomers(self.shop)
        for customer in early:
            self.visit(0.0, customer)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @rule(after=SOON, customer=st.runner().flatmap(lambda machine: customers(len(machine.visits))))
    @precondition(lambda self: len(self.visits) < MAX_CUSTOMERS)
    def visit(self, after: float, customer: Customer) -> None:
        self.wait(after)
        work = self.simulator.run(customer)
        self.visits.append(self.loop.create_task(work, name=customer.user_id))

    @rule(path=CALLS, seconds=SECONDS)
    def wait_for(self, path: str, seconds: float) -> None:
        """Let time pass until a call has taken effect, but no longer than so many seconds."""
        self.loop.run_until_complete(self._wait_for(path, seconds))

    async def _wait_for(self, path: str, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.shop.network.wait_until_served(path)

    lose_request = calls_meet(Fate.LOSE_REQUEST)
    lose_reply = calls_meet(Fate.LOSE_REPLY)
    double_request = calls_meet(Fate.DOUBLE_REQUEST)
    delay_request = calls_meet(Fate.DELAY_REQUEST)
    delay_reply = calls_meet(Fate.DELAY_REPLY)
    kill_callee = calls_meet(Fate.KILL_CALLEE)
    kill_caller = calls_meet(Fate.KILL_CALLER)

    kill = happens(SimulatedShop.kill, process=PROCESS, seconds=SECONDS)
    pause = happens(SimulatedShop.pause, process=PROCESS, seconds=SECONDS)
    stop = happens(SimulatedShop.stop, process=PROCESS, seconds=SECONDS)
    stop_database = happens(SimulatedShop.stop_database, database=DATABASE, seconds=SECONDS)
    set_clock = happens(SimulatedShop.set_clock, database=DATABASE, hours=st.sampled_from((2, -2, 48, -48)))
    slow_down = happens(SimulatedShop.slow_down, path=EFFECT, seconds=SECONDS)
    # Shipping is refused most often: only there a charge has already been made.
    refuse = happens(
        SimulatedShop.refuse, path=EFFECT | st.just(SHIP_ORDER), kind=st.sampled_from(REFUSALS), seconds=SECONDS
    )
    lose_commits = precondition(lambda self: self.loses_commits)(
        happens(SimulatedShop.lose_commits, count=st.integers(1, 6), restart=st.booleans())
    )

    @override
    def teardown(self) -> None:
        with self._exit:
            # Otherwise a step has failed, or Hypothesis has given the example up: there is no end to check.
            if sys.exc_info()[0] is None:
                violations = self.loop.run_until_complete(violations_in_the_end(self.shop, self.simulator, self.visits))
                if violations:
                    raise AssertionError("\n".join([*self.trace, *violations]))


def simulate(runs: int, *, derandomize: bool = False) -> None:
    """Simulate so many runs. Raise an error with the fewest steps that violate an invariant."""
    options = settings(
        max_examples=runs,
        stateful_step_count=20,
        deadline=None,
        derandomize=derandomize,
        # Without explanations, for which each line of a run would be traced.
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(OrdersUnderFaults, settings=options)
