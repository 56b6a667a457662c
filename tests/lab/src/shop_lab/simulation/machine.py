"""Customers of a simulated shop, and the faults that befall it, as Hypothesis chooses them."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import engine
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from typing_extensions import override

from chassis import errors
from shop_lab.simulation import services
from shop_lab.simulation.clock import VirtualLoop, close, deterministic, errors_in_trace
from shop_lab.simulation.customers import SEEDS, SimulatedCustomers, customers
from shop_lab.simulation.faults import CHARGE, EFFECTS, PLACE_ORDER, REMOVE_ALL_ORDERED, SHIP_ORDER, Fate, Faults
from shop_lab.simulation.outcome import violations_in_the_end
from shop_lab.simulation.processes import create_task
from shop_lab.simulation.simulated_shop import CHECKOUTS, DATABASES, PROCESSES, SimulatedShop
from shop_lab.world.customer_plan import Customer
from shop_lab.world.customers import CustomerResult

# Charges and shipments are hit most often: they must happen once.
CALLS = st.sampled_from((CHARGE, SHIP_ORDER, *EFFECTS, CHARGE, SHIP_ORDER, PLACE_ORDER, "/shop.CartService/AddItem"))
SOON = st.sampled_from((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
SECONDS = st.sampled_from((0.1, 0.5, 2.0, 6.0))
# Peers refuse by FailedPrecondition in good order, and by the other kinds in error.
REFUSALS = st.just(errors.FailedPrecondition) | st.sampled_from(
    (errors.InvalidArgument, errors.Unimplemented, errors.NotFound, errors.Internal, errors.ResourceExhausted)
)
FAULTS = st.builds(
    Faults,
    seed=SEEDS,
    slow_share=st.sampled_from((0.0, 0.02, 0.1)),
    lost_reply_share=st.sampled_from((0.0, 0.0, 0.02)),
    fates=st.lists(st.sampled_from(Fate), min_size=1, max_size=3, unique=True),
    fate_share=st.sampled_from((0.0, 0.25, 0.5)),
)
LOSSES = st.fixed_dictionaries(
    {
        # Too early for the shop to know what it has charged, and too late for it to forget what it has answered.
        "path": st.just(CHARGE) | st.just(PLACE_ORDER) | CALLS,
        "after": st.integers(0, 2),
        "count": st.integers(1, 8),
        "restart": st.booleans(),
    }
)
MAX_CUSTOMERS = 3
SHRINKING_SECONDS = 60
EFFECT = st.sampled_from(EFFECTS)
# Most of what must survive is in checkout and its journal.
PROCESS = st.sampled_from((*CHECKOUTS, *CHECKOUTS, *PROCESSES))
DATABASE = st.sampled_from(("checkout", *DATABASES))


def refusals(paths: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"path": paths, "error": REFUSALS, "seconds": st.sampled_from((1.0, 3.0, 6.0))})


def happens(to_shop: Callable[..., None], **arguments: Any) -> Callable[..., None]:
    """Return a rule by which something happens to the shop a little later."""

    def happen(self: "OrdersUnderFaults", after: float, **given: Any) -> None:
        self.wait(after)
        to_shop(self.shop, **given)

    happen.__name__ = to_shop.__name__
    become_rule: Callable[[Callable[..., None]], Callable[..., None]] = rule(after=SOON, **arguments)
    return become_rule(happen)


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
        faults=FAULTS,
        # After the charge, or while the cart still has what was ordered.
        refusal=st.none() | refusals(st.just(SHIP_ORDER)) | refusals(st.just(REMOVE_ALL_ORDERED)) | refusals(EFFECT),
        loss=st.none() | LOSSES,
        early=st.integers(1, 2).flatmap(lambda count: st.tuples(*map(customers, range(count)))),
    )
    def open_shop(
        self,
        *,
        faults: Faults,
        early: Sequence[Customer],
        refusal: dict[str, Any] | None = None,
        loss: dict[str, Any] | None = None,
    ) -> None:
        self.loop = VirtualLoop()
        self.loop.set_task_factory(create_task)
        services.load_schemas()
        self._exit.enter_context(deterministic(self.loop))
        self._exit.enter_context(errors_in_trace(self.trace))
        self._exit.callback(close, self.loop)
        self.shop = SimulatedShop(self.loop, faults, self.trace)
        self._exit.callback(self.shop.stop_all)
        self.simulator = SimulatedCustomers(self.shop)
        if refusal:
            self.shop.refuse(**refusal)
        self.keeps_commits = not loss
        if loss:
            self.loop.create_task(self._lose_commits(**loss), name="loss")
        for customer in early:
            self.visit(0.0, customer)

    async def _lose_commits(self, path: str, after: int, count: int, restart: bool) -> None:
        """Let the journal lose its last commits as soon as a call has taken effect."""
        for _ in range(after + 1):
            await self.shop.network.wait_until_served(path)
        if not self.shop.faults.calm:
            self.shop.lose_commits(count, restart)

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

    kill = happens(SimulatedShop.kill, process=PROCESS, seconds=SECONDS)
    pause = happens(SimulatedShop.pause, process=PROCESS, seconds=SECONDS)
    stop = happens(SimulatedShop.stop, process=PROCESS, seconds=SECONDS)
    stop_database = happens(SimulatedShop.stop_database, database=DATABASE, seconds=SECONDS)
    set_clock = happens(
        SimulatedShop.set_clock,
        database=DATABASE,
        hours=st.sampled_from((2, -1, 48, -48, 2_400)),
        seconds=st.sampled_from((60.0, 1e6)),
    )
    # Whoever refunds an order that payment does not release has to refund it by hand.
    refuse = precondition(lambda self: not self.shop.operators)(
        happens(SimulatedShop.refuse, path=EFFECT, error=REFUSALS, seconds=SECONDS)
    )
    settle = precondition(lambda self: not self.shop.refuses)(happens(SimulatedShop.settle))
    # A later release relies on the journal alone.
    upgrade = precondition(lambda self: self.keeps_commits)(
        happens(SimulatedShop.upgrade, process=st.sampled_from(CHECKOUTS), seconds=SECONDS)
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
        stateful_step_count=15,
        deadline=None,
        derandomize=derandomize,
        # Without explanations, for which each line of a run would be traced.
        phases=[Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    with mock.patch.object(engine, "MAX_SHRINKING_SECONDS", SHRINKING_SECONDS):
        run_state_machine_as_test(OrdersUnderFaults, settings=options)
