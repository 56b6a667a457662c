"""A running shop for tests of single faults: configure its processes, place orders, check the invariants."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from chassis.errors import DomainError, InvalidArgument
from shop.checkout_pb2 import PlaceOrderRequest
from shop.empty_pb2 import Empty
from shop_cli.local.processes import Process
from shop_internal.orders_pb2 import ListOrdersRequest, Order, OrderState
from shop_kit.charges import Charge, read_charges
from shop_lab.world.clients import ShopClients, open_clients
from shop_lab.world.customer_plan import Customer, Intent, Line, valid_intent
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import ClientOutcome, Evidence, OrderResponse
from shop_lab.world.evidence_collector import collect_evidence, wait_until_quiet
from shop_lab.world.invariants import InvariantResult, check_invariants
from shop_lab.world.ledgers import card_hmac
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.shop_under_test import START_SECONDS, Database, ShopUnderTest, shop_under_test

_POLL_SECONDS = 0.02


@dataclass
class FaultTestbed:
    """A running shop, with clients and simulated customers.

    Attributes:
        product_names: of all products, by id.
    """

    shop: ShopUnderTest
    clients: ShopClients
    simulator: CustomerSimulator
    product_names: Mapping[str, str]
    _last_number: int = 0
    _variables: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def products(self) -> list[str]:
        """The ids of all products."""
        return sorted(self.product_names)

    async def configure(self, variables: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Make every process run with exactly these additional variables; restart any process whose variables differ.

        Also restart processes that have ended. Without arguments, restore the original configuration.
        """
        requested = {process.name: dict((variables or {}).get(process.name, {})) for process in self.shop.processes}
        stale = (
            process.name
            for process in self.shop.processes
            if not process.running or requested[process.name] != self._variables.get(process.name, {})
        )
        await asyncio.gather(*(self.restart(name, **requested[name]) for name in stale))

    async def restart(self, name: str, **variables: str) -> None:
        """Kill a process and start it again with these additional variables."""
        process = self.shop.processes[name]
        process.kill()
        await process.wait()
        self._variables[name] = variables
        await process.start(**variables)
        await process.wait_until_serving(START_SECONDS)
        if name in self.shop.checkouts:
            checkout = self.clients.checkouts[self.shop.checkouts.index(name)]
            await self._wait_until_connected(lambda: checkout.PlaceOrder(PlaceOrderRequest()))
        if name == self.shop.checkouts[-1]:
            await self._wait_until_connected(lambda: self.clients.journal.ListOrders(ListOrdersRequest(limit=-1)))

    async def _wait_until_connected(self, make_invalid_call: Callable[[], Awaitable[object]]) -> None:
        # Until the channel has reconnected, calls fail without reaching the process and its failpoints.
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await make_invalid_call()
                except InvalidArgument:
                    return
                except DomainError:
                    await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def restarted_on_exit(self, name: str, **variables: str) -> AsyncIterator[Process]:
        """Restart a process with these additional variables only, whenever it ends within the context."""
        process = self.shop.processes[name]
        restarting = asyncio.create_task(self._restart_on_exit(process, variables), name=f"restart {name}")
        try:
            yield process
        finally:
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)

    async def _restart_on_exit(self, process: Process, variables: dict[str, str]) -> None:
        while True:
            await process.wait()
            self._variables[process.name] = variables
            await process.start(**variables)

    def new_intent(self, *, keyed: bool = True, max_tries: int | None = None, checkout: int = 0) -> Intent:
        """Return a new valid order whose first try calls the checkout with this index."""
        # The simulator selects the checkout by the order's number.
        self._last_number += len(self.clients.checkouts)
        number = self._last_number + checkout
        lines = [Line(product_id, 1 + index) for index, product_id in enumerate(self.products[:3])]
        intent = valid_intent(number, f"customer-{number}", lines, f"key-{number}" if keyed else None)
        return replace(intent, max_tries=max_tries)

    async def place_orders(self, *intents: Intent) -> list[CustomerResult]:
        """Place these orders concurrently, each by a customer of its own."""
        customers = [Customer(intent.user_id, ((intent,),)) for intent in intents]
        return await asyncio.gather(*(self.simulator.run(customer) for customer in customers))

    async def journal_order(self, intent: Intent) -> Order | None:
        """Return the newest order of the intent's customer in the journal."""
        listed = await self.clients.journal.ListOrders(ListOrdersRequest(limit=1_000))
        return next((order for order in listed.orders if order.user_id == intent.user_id), None)

    async def is_in_state(self, intent: Intent, state: OrderState.ValueType) -> bool:
        """Return whether that order is in a state."""
        order = await self.journal_order(intent)
        return order is not None and order.state == state

    def charges(self, intent: Intent) -> list[Charge]:
        """Return the entries of payment's ledger for the order's card."""
        card = card_hmac(intent, self.shop.hmac_key)
        return [charge for charge in read_charges(self.shop.payment_url) if charge.card_hmac == card]

    def capture_count(self, intent: Intent) -> int:
        """Return how many captured charges the order's card has."""
        return sum(charge.state == "CHARGED" for charge in self.charges(intent))

    async def evidence(self, results: list[CustomerResult]) -> Evidence:
        """Wait until checkout is quiet and return the evidence about these orders, without unmatched entries."""
        quiet_seconds = await wait_until_quiet(self.clients.journal)
        evidence = await collect_evidence(self.shop, self.simulator, self.clients.journal, results, quiet_seconds)
        # Tests share the shop, so entries of other tests' orders do not match any of these.
        return replace(evidence, unmatched_entries=(), product_names=self.product_names)

    async def violations(self, results: list[CustomerResult]) -> list[InvariantResult]:
        """Return the invariants that do not hold for these orders."""
        return [invariant for invariant in check_invariants(await self.evidence(results)) if not invariant.holds]


@asynccontextmanager
async def fault_testbed(
    folder: Path, database: Database, *, checkouts: int = 2, lease_seconds: float = 1.0, timeout_seconds: float = 1.5
) -> AsyncIterator[FaultTestbed]:
    """Start a testbed in an empty folder and stop it when the context is left."""
    async with (
        shop_under_test(folder, database, checkouts=checkouts, lease_seconds=lease_seconds) as shop,
        open_clients(shop) as clients,
    ):
        gate = ProgressGate(lambda _: None, limit=math.inf)
        simulator = CustomerSimulator(
            clients.cart, clients.checkouts, gate, timeout_seconds=timeout_seconds, hangup_share=0
        )
        names = {product.id: product.name for product in (await clients.catalog.ListProducts(Empty())).products}
        yield FaultTestbed(shop, clients, simulator, names)


def responses_of(results: list[CustomerResult]) -> list[OrderResponse]:
    """Return the response to each order, in the order of the results."""
    return [response for result in results for response in result.responses.values()]


def outcomes_of(results: list[CustomerResult]) -> list[ClientOutcome]:
    """Return the outcome of each order, in the order of the results."""
    return [response.outcome for response in responses_of(results)]


def failpoint(name: str, action: str, times: int = 1) -> dict[str, str]:
    """Return the variable that makes a process kill itself, hang or fail the first `times` it reaches a failpoint.

    Args:
        name: of the failpoint.
        action: `kill`, `hang` or `error`.
        times: how often.
    """
    return {"FAILPOINTS": f"{name}={action}*{times}"}


def process_with(failpoint_name: str) -> str:
    """Return the name of the process that has a failpoint; of the checkouts the first one."""
    service = failpoint_name.partition(".")[0]
    return "checkout-1" if service == "checkout" else service
