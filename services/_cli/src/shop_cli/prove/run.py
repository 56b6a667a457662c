"""One run: customers and faults until all is done, then quiet, and then the evidence."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shop.empty_pb2 import Empty
from shop_cli.prove.buying import Bought, Buyer
from shop_cli.prove.connections import connected
from shop_cli.prove.evidence import Evidence
from shop_cli.prove.gathering import gather, wait_for_quiet
from shop_cli.prove.harming import Harmer, Target
from shop_cli.prove.pace import Pace
from shop_cli.prove.plan import Fault, Harmed, customers, faults
from shop_cli.prove.stage import LEASE_SECONDS, START_SECONDS, Database, Stage, staged

_CUSTOMERS_AT_ONCE = 32
_NAIVE_SETTLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What to run.

    Attributes:
        kills, pauses, restarts: how many of each.
        naive: prove the control in place of checkout.
    """

    orders: int
    seed: int
    database: Database
    kills: int
    pauses: int
    restarts: int
    naive: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial: the evidence, how often each harm was done, and how long the customers took."""

    evidence: Evidence
    done: Counter[str]
    ordering_seconds: float


async def prove(trial: Trial, folder: Path, on_progress: Callable[[int, Counter[str]], None]) -> Outcome:
    """Run a trial with all its data in an empty folder."""
    done: Counter[str] = Counter()
    pace = Pace(lambda finished: on_progress(finished, done))
    async with staged(folder, trial.database, naive=trial.naive) as stage, connected(stage) as peers:
        products = sorted(product.id for product in (await peers.catalog.ListProducts(Empty())).products)
        buyer = Buyer(peers.cart, peers.checkouts, pace)
        harmer = Harmer(_targets(stage), pace, done, START_SECONDS)
        started = time.monotonic()
        bought = await _order_and_harm(trial, products, buyer, harmer, schedule(trial, stage.checkouts))
        ordering_seconds = time.monotonic() - started
        if trial.naive:
            await asyncio.sleep(_NAIVE_SETTLE_SECONDS)
            evidence = await gather(stage, buyer, None, bought, 0.0)
        else:
            evidence = await gather(stage, buyer, peers.journal, bought, await wait_for_quiet(peers.journal))
    return Outcome(evidence, done, ordering_seconds)


def schedule(trial: Trial, checkouts: Sequence[str]) -> list[Fault]:
    """The faults of a trial: checkout most of all, then those whose part can't be undone."""
    harmed = [
        *(Harmed(name, 20) for name in checkouts),
        Harmed("payment", 20),
        Harmed("shipping", 14),
        Harmed("email", 8),
        Harmed("cart", 8),
        Harmed("valkey", 4),
        Harmed("product-catalog", 3),
        Harmed("currency", 3),
    ]
    return faults(
        trial.orders,
        trial.seed,
        kills=trial.kills,
        pauses=trial.pauses,
        restarts=trial.restarts if trial.database == "postgres" else 0,
        harmed=harmed,
        pause_seconds=LEASE_SECONDS * 1.5,
    )


def _targets(stage: Stage) -> dict[str, Target]:
    targets: dict[str, Target] = {process.name: process for process in stage.shop}
    targets["valkey"] = stage.valkey
    if stage.postgres is not None:
        targets["postgres"] = stage.postgres
    return targets


async def _order_and_harm(
    trial: Trial, products: Sequence[str], buyer: Buyer, harmer: Harmer, faults_to_do: Sequence[Fault]
) -> list[Bought]:
    waiting = iter(customers(trial.orders, trial.seed, products))
    bought: list[Bought] = []

    async def play() -> None:
        # Shared: each takes the next customer.
        bought.extend([await buyer.play(customer) for customer in waiting])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(harmer.run(faults_to_do, trial.orders), name="harm")
        for number in range(_CUSTOMERS_AT_ONCE):
            tasks.create_task(play(), name=f"customer {number}")
    return bought
