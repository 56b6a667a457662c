"""Run a trial: simulate customers and inject faults, wait until checkout is quiet, collect the evidence."""

import asyncio
import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from chassis.background import in_background
from shop.empty_pb2 import Empty
from shop_cli.local.child_process import ChildProcess
from shop_lab.prove.coverage import Exercise, compare_with_floors, count_exercises
from shop_lab.prove.fault_injector import FaultInjector
from shop_lab.prove.fault_plan import DATABASE, RELAY, Fault, FaultKind, plan_faults
from shop_lab.prove.progress_gate import ProgressGate
from shop_lab.prove.shop_faults import ShopFaults
from shop_lab.world.clients import open_clients
from shop_lab.world.customer_plan import Customer, plan_customers
from shop_lab.world.customers import CustomerResult, CustomerSimulator
from shop_lab.world.evidence import Evidence
from shop_lab.world.evidence_collector import collect_evidence, wait_until_quiet, with_justified_flags
from shop_lab.world.invariants import PROGRESS_SHARE
from shop_lab.world.operators import requeue_dead_letters
from shop_lab.world.refusing_peers import serve_refusing_peers
from shop_lab.world.shop_under_test import LATE_LINKS, LINKED, Database, ShopUnderTest, shop_under_test

_CONCURRENT_CUSTOMERS = 32
_NAIVE_SETTLE_SECONDS = 3.0
_LAG_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """The parameters of a run.

    Attributes:
        faults: the number of faults of each kind.
        naive: test the naive checkout instead of the real one, with customers who wait for each response, send nothing
            twice without need, and place one order at a time.
    """

    orders: int
    seed: int
    database: Database
    faults: Mapping[FaultKind, int]
    naive: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        fault_counts: the injected faults by kind.
        exercises: what the run did, and the least that it had to do.
        ordering_seconds: how long the customers took.
        lag_seconds: how late this process's short sleeps ended on average.
    """

    evidence: Evidence
    fault_counts: Counter[str]
    exercises: list[Exercise]
    ordering_seconds: float
    lag_seconds: float = 0.0


async def run_trial(trial: Trial, folder: Path, on_progress: Callable[[int, Counter[str]], None]) -> TrialResult:
    """Run a trial.

    Args:
        trial: its parameters.
        folder: empty; for all data and logs.
        on_progress: called with the number of finished orders and the injected faults by kind.
    """
    gate = ProgressGate(lambda finished: on_progress(finished, injector.counts))
    lags = [0.0]
    async with (
        in_background(partial(_measure_lags, lags)),
        shop_under_test(folder, trial.database, naive=trial.naive) as shop,
        open_clients(shop) as clients,
        in_background(partial(requeue_dead_letters, clients.journal)),
        serve_refusing_peers(shop.processes["shipping"].address) as peers,
    ):
        simulator = CustomerSimulator(clients.cart, clients.checkouts)
        targets: dict[str, ChildProcess] = {process.name: process for process in shop.processes}
        targets["valkey"] = shop.valkey
        if shop.postgres is not None:
            targets[DATABASE] = shop.postgres
        faults = ShopFaults(targets, shop.links, peers, shop.inbox, gate, clients.journals, trial.orders)
        injector = FaultInjector(faults.inject, gate)
        names = {product.id: product.name for product in (await clients.catalog.ListProducts(Empty())).products}
        plan = fault_plan(trial, shop)
        started = time.monotonic()
        customers = plan_customers(trial.orders, trial.seed, sorted(names), patient=trial.naive)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(injector.run(plan, trial.orders), name="inject faults")
            results = await _run_customers(customers, simulator, gate)
        ordering_seconds = time.monotonic() - started
        if trial.naive:
            await asyncio.sleep(_NAIVE_SETTLE_SECONDS)
            evidence = await collect_evidence(shop, simulator, None, results, 0.0)
            evidence = replace(evidence, product_names=names)
            return TrialResult(evidence, injector.counts, [], ordering_seconds, fmean(lags))
        quiet_seconds = await wait_until_quiet(clients.journal)
        evidence = await collect_evidence(shop, simulator, clients.journal, results, quiet_seconds)
        evidence = with_justified_flags(evidence, peers)
        counts = count_exercises(shop, simulator.replays) | faults.effects
    exercises = compare_with_floors(trial.orders, counts, plan)
    evidence = replace(evidence, product_names=names)
    return TrialResult(evidence, injector.counts, exercises, ordering_seconds, fmean(lags))


async def _measure_lags(lags: list[float]) -> None:
    while True:
        due = time.monotonic() + _LAG_INTERVAL_SECONDS
        await asyncio.sleep(_LAG_INTERVAL_SECONDS)
        lags.append(time.monotonic() - due)


def fault_plan(trial: Trial, shop: ShopUnderTest) -> list[Fault]:
    """Plan the faults of a trial: every store and service that an order depends on is hit about as often."""
    often = [*shop.checkouts, *("payment", "shipping", "email", "cart", "valkey") * 2]
    processes = [*often * 2, "product-catalog", "currency"]
    failpoints = {name: failpoints_of(shop.processes[name].program.module) for name in {*processes} - {"valkey"}}
    disks = [] if shop.postgres else [*shop.checkouts, "payment", "shipping", "email"]
    targets = {
        FaultKind.KILL: processes,
        FaultKind.KILL_AT_FAILPOINT: sorted(name for name, points in failpoints.items() if points),
        # Half of the time a process that owns orders.
        FaultKind.PAUSE: [*processes, *shop.checkouts * (len(processes) // 2)],
        FaultKind.STALL: shop.checkouts,
        FaultKind.RESTART_DATABASE: [DATABASE],
        FaultKind.NETWORK: LINKED,
        FaultKind.UNIMPLEMENTED: LINKED,
        FaultKind.REFUSAL: ["payment", "shipping"],
        # Never all ports of a peer, so that checkout can resolve the order at another one in the meantime.
        FaultKind.LATE: LATE_LINKS,
        FaultKind.FULL_DISK: disks,
        FaultKind.HUNG_DATABASE: disks,
        FaultKind.MAIL_RELAY: [RELAY],
        FaultKind.REFUSED_NOTIFICATIONS: ["email-internal", "cart-internal"],
        FaultKind.REFUSED_RELEASES: ["payment-internal"],
        FaultKind.UNRESOLVED_SHIPMENTS: shop.checkouts,
        FaultKind.OPERATORS: shop.checkouts,
        FaultKind.CLOCK: [*shop.checkouts, "shipping", "email"],
        FaultKind.RELEASES: shop.checkouts,
    }
    return plan_faults(trial.seed, trial.orders, trial.faults, targets, failpoints)


def failpoints_of(package: str) -> Sequence[str]:
    """Return the failpoints of a service, by convention in its module `failpoints`; none if it has no such module."""
    try:
        return tuple(importlib.import_module(f"{package}.failpoints").FAILPOINTS)
    except ModuleNotFoundError:
        return ()


async def _run_customers(
    planned: Sequence[Customer], simulator: CustomerSimulator, gate: ProgressGate
) -> list[CustomerResult]:
    """Run customers as the gate opens; none any more once so many have waited in vain that the run proves nothing."""
    customers = iter(planned)  # all workers take their next customer from it
    results: list[CustomerResult] = []
    most_in_vain = len(planned) * (1 - PROGRESS_SHARE)
    in_vain = 0

    async def work() -> None:
        nonlocal in_vain
        for customer in customers:
            await gate.wait_until_open(customer.intents[-1].number)
            if in_vain <= most_in_vain:
                results.append(await simulator.run(customer))
                in_vain += results[-1].waited_in_vain
            await gate.finish(len(customer.intents))

    await asyncio.gather(*(work() for _ in range(_CONCURRENT_CUSTOMERS)))
    return results
