"""Run a trial: simulate customers and inject faults, wait until checkout is quiet, collect the evidence."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shop.empty_pb2 import Empty
from shop_cli.local.control import ControllableProcess
from shop_cli.prove.clients import open_clients
from shop_cli.prove.customer_plan import plan_customers
from shop_cli.prove.customers import CustomerResult, CustomerSimulator
from shop_cli.prove.evidence import Evidence
from shop_cli.prove.evidence_collector import collect_evidence, wait_until_quiet
from shop_cli.prove.fault_injector import FaultInjector
from shop_cli.prove.fault_plan import Fault, TargetWeight, plan_faults
from shop_cli.prove.progress_gate import ProgressGate
from shop_cli.prove.shop_under_test import LEASE_SECONDS, START_SECONDS, Database, ShopUnderTest, shop_under_test

_CONCURRENT_CUSTOMERS = 32
_NAIVE_SETTLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The parameters of a run.

    Attributes:
        kills, pauses, restarts: the number of faults of each kind; databases are restarted on PostgreSQL only.
        naive: test the naive checkout instead of the real one.
    """

    orders: int
    seed: int
    database: Database
    kills: int
    pauses: int
    restarts: int
    naive: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial: the evidence, the injected faults by kind, and how long the customers took."""

    evidence: Evidence
    fault_counts: Counter[str]
    ordering_seconds: float


async def run_trial(trial: Trial, folder: Path, on_progress: Callable[[int, Counter[str]], None]) -> TrialResult:
    """Run a trial.

    Args:
        trial: its parameters.
        folder: empty; for all data and logs.
        on_progress: called with the number of finished orders and the injected faults by kind.
    """
    fault_counts: Counter[str] = Counter()
    gate = ProgressGate(lambda finished: on_progress(finished, fault_counts))
    async with shop_under_test(folder, trial.database, naive=trial.naive) as shop, open_clients(shop) as clients:
        products = sorted(product.id for product in (await clients.catalog.ListProducts(Empty())).products)
        simulator = CustomerSimulator(clients.cart, clients.checkouts, gate)
        injector = FaultInjector(_fault_targets(shop), gate, fault_counts, START_SECONDS)
        started = time.monotonic()
        results = await _order_under_faults(trial, products, simulator, injector, fault_plan(trial, shop.checkouts))
        ordering_seconds = time.monotonic() - started
        if trial.naive:
            await asyncio.sleep(_NAIVE_SETTLE_SECONDS)
            evidence = await collect_evidence(shop, simulator, None, results, 0.0)
        else:
            quiet_seconds = await wait_until_quiet(clients.journal)
            evidence = await collect_evidence(shop, simulator, clients.journal, results, quiet_seconds)
    return TrialResult(evidence, fault_counts, ordering_seconds)


def fault_plan(trial: Trial, checkouts: Sequence[str]) -> list[Fault]:
    """Plan the faults of a trial: most hit checkout, then the services whose effects cannot be undone."""
    targets = [
        *(TargetWeight(name, 20) for name in checkouts),
        TargetWeight("payment", 20),
        TargetWeight("shipping", 14),
        TargetWeight("email", 8),
        TargetWeight("cart", 8),
        TargetWeight("valkey", 4),
        TargetWeight("product-catalog", 3),
        TargetWeight("currency", 3),
    ]
    return plan_faults(
        trial.orders,
        trial.seed,
        kills=trial.kills,
        pauses=trial.pauses,
        restarts=trial.restarts if trial.database == "postgres" else 0,
        targets=targets,
        pause_seconds=LEASE_SECONDS * 1.5,
    )


def _fault_targets(shop: ShopUnderTest) -> dict[str, ControllableProcess]:
    targets: dict[str, ControllableProcess] = {process.name: process for process in shop.processes}
    targets["valkey"] = shop.valkey
    if shop.postgres is not None:
        targets["postgres"] = shop.postgres
    return targets


async def _order_under_faults(
    trial: Trial,
    products: Sequence[str],
    simulator: CustomerSimulator,
    injector: FaultInjector,
    faults: Sequence[Fault],
) -> list[CustomerResult]:
    # All workers take their next customer from this iterator.
    customers = iter(plan_customers(trial.orders, trial.seed, products))
    results: list[CustomerResult] = []

    async def run_customers() -> None:
        results.extend([await simulator.run(customer) for customer in customers])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(injector.run(faults, trial.orders), name="inject faults")
        for number in range(_CONCURRENT_CUSTOMERS):
            tasks.create_task(run_customers(), name=f"customers {number}")
    return results
