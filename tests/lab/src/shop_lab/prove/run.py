"""Run a trial: simulate customers and inject faults, wait until checkout is quiet, collect the evidence."""

import asyncio
import importlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shop.empty_pb2 import Empty
from shop_cli.local.child_process import ChildProcess
from shop_cli.local.ports import HOST
from shop_kit.smtp_relay import Inbox, relay
from shop_lab.prove.coverage import Exercise, compare_with_floors, count_exercises
from shop_lab.prove.fault_injector import FaultInjector
from shop_lab.prove.fault_plan import DATABASE, RELAY, Fault, FaultKind, Targets, plan_faults
from shop_lab.prove.shop_faults import ShopFaults
from shop_lab.world.clients import ShopClients, open_clients
from shop_lab.world.customer_plan import plan_customers
from shop_lab.world.customers import (
    HANGUP_SHARE,
    REPEAT_SHARE,
    CustomerResult,
    CustomerSimulator,
)
from shop_lab.world.dead_letters import requeued_dead_letters
from shop_lab.world.evidence import Evidence
from shop_lab.world.evidence_collector import collect_evidence, wait_until_quiet, with_justified_flags
from shop_lab.world.invariants import PROGRESS_SHARE
from shop_lab.world.progress_gate import ProgressGate
from shop_lab.world.refusing_peers import serve_refusing_peers
from shop_lab.world.shop_under_test import (
    LATE_LINKS,
    LEASE_SECONDS,
    LINKED,
    Database,
    ShopUnderTest,
    sent_mails_of,
    shop_under_test,
)

_CONCURRENT_CUSTOMERS = 32
_NAIVE_SETTLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Trial:
    """The parameters of a run.

    Attributes:
        faults: the number of faults of each kind.
        naive: test the naive checkout instead of the real one.
        patient: customers wait for each response, send nothing twice without need, and place one order at a time.
    """

    orders: int
    seed: int
    database: Database
    faults: Mapping[FaultKind, int]
    naive: bool = False
    patient: bool = False


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        fault_counts: the injected faults by kind.
        exercises: what the run did, and the least that it had to do.
        ordering_seconds: how long the customers took.
    """

    evidence: Evidence
    fault_counts: Counter[str]
    exercises: list[Exercise]
    ordering_seconds: float


async def run_trial(trial: Trial, folder: Path, on_progress: Callable[[int, Counter[str]], None]) -> TrialResult:
    """Run a trial.

    Args:
        trial: its parameters.
        folder: empty; for all data and logs.
        on_progress: called with the number of finished orders and the injected faults by kind.
    """
    gate = ProgressGate(lambda finished: on_progress(finished, injector.counts))
    inbox = Inbox(folder=sent_mails_of(folder))
    async with (
        relay(inbox) as smtp_port,
        shop_under_test(
            folder,
            trial.database,
            naive=trial.naive,
            proxied=True,
            smtp_url=f"smtp://{HOST}:{smtp_port}",
        ) as shop,
        open_clients(shop) as clients,
        requeued_dead_letters(clients.journal),
        serve_refusing_peers(shop.processes["shipping"].address) as peers,
    ):
        simulator = _simulator(trial, clients, gate)
        faults = ShopFaults(_fault_targets(shop), shop.links, peers, inbox, gate, orders=trial.orders)
        injector = FaultInjector(faults.inject, gate, lambda: simulator.has_failed)
        names = {product.id: product.name for product in (await clients.catalog.ListProducts(Empty())).products}
        plan = fault_plan(trial, shop)
        started = time.monotonic()
        results = await _order_under_faults(trial, sorted(names), simulator, injector, plan)
        ordering_seconds = time.monotonic() - started
        if trial.naive:
            await asyncio.sleep(_NAIVE_SETTLE_SECONDS)
            evidence = await collect_evidence(shop, simulator, None, results, 0.0)
            return TrialResult(replace(evidence, product_names=names), injector.counts, [], ordering_seconds)
        quiet_seconds = await wait_until_quiet(clients.journal)
        evidence = await collect_evidence(shop, simulator, clients.journal, results, quiet_seconds)
        evidence = with_justified_flags(evidence, peers)
        counts = count_exercises(shop, simulator.replays) | faults.effects
    exercises = compare_with_floors(trial.orders, counts, plan, injector.injected)
    return TrialResult(replace(evidence, product_names=names), injector.counts, exercises, ordering_seconds)


def _simulator(trial: Trial, clients: ShopClients, gate: ProgressGate) -> CustomerSimulator:
    return CustomerSimulator(
        clients.cart,
        clients.checkouts,
        gate,
        hangup_share=0 if trial.patient else HANGUP_SHARE,
        repeat_share=0 if trial.patient else REPEAT_SHARE,
        max_unanswered=round(trial.orders * (1 - PROGRESS_SHARE)),
    )


def fault_plan(trial: Trial, shop: ShopUnderTest) -> list[Fault]:
    """Plan the faults of a trial: every store and service that an order depends on is hit about as often."""
    weights: dict[str, int] = {
        **dict.fromkeys(shop.checkouts, 10),
        **dict.fromkeys(("payment", "shipping", "email", "cart", "valkey"), 20),
        **dict.fromkeys(("product-catalog", "currency"), 5),
    }
    failpoints = {name: failpoints_of(shop.processes[name].program.module) for name in weights if name != "valkey"}
    disks = [] if shop.postgres else [*shop.checkouts, "payment", "shipping", "email"]
    in_turn = {
        FaultKind.STALL: shop.checkouts,
        FaultKind.RESTART_DATABASE: [DATABASE],
        FaultKind.NETWORK: LINKED,
        FaultKind.UNIMPLEMENTED: LINKED,
        FaultKind.REFUSAL: ["payment", "shipping"],
        # Never all ports of a peer, so that checkout can resolve the order at another one in the meantime.
        FaultKind.LATE: [name for name in LATE_LINKS if name in shop.links],
        FaultKind.FULL_DISK: disks,
        FaultKind.HUNG_DATABASE: disks,
        FaultKind.MAIL_RELAY: [RELAY],
        FaultKind.REFUSED_NOTIFICATIONS: ["email-internal", "cart-internal"],
        FaultKind.REFUSED_RELEASES: ["payment-internal"],
        FaultKind.UNRESOLVED_SHIPMENTS: shop.checkouts,
    }
    targets = Targets(weights, failpoints, shop.checkouts, in_turn)
    return plan_faults(trial.orders, trial.seed, trial.faults, targets, LEASE_SECONDS * 1.5)


def failpoints_of(package: str) -> Sequence[str]:
    """Return the failpoints of a service, by convention in its module `failpoints`; none if it has no such module."""
    try:
        return tuple(importlib.import_module(f"{package}.failpoints").FAILPOINTS)
    except ModuleNotFoundError:
        return ()


def _fault_targets(shop: ShopUnderTest) -> dict[str, ChildProcess]:
    targets: dict[str, ChildProcess] = {process.name: process for process in shop.processes}
    targets["valkey"] = shop.valkey
    if shop.postgres is not None:
        targets[DATABASE] = shop.postgres
    return targets


async def _order_under_faults(
    trial: Trial,
    products: Sequence[str],
    simulator: CustomerSimulator,
    injector: FaultInjector,
    faults: Sequence[Fault],
) -> list[CustomerResult]:
    # All workers take their next customer from this iterator.
    customers = iter(plan_customers(trial.orders, trial.seed, products, patient=trial.patient))
    results: list[CustomerResult] = []

    async def run_customers() -> None:
        results.extend([await simulator.run(customer) for customer in customers])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(injector.run(faults, trial.orders), name="inject faults")
        for number in range(_CONCURRENT_CUSTOMERS):
            tasks.create_task(run_customers(), name=f"customers {number}")
    return results
