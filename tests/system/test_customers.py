"""Simulated customers of all kinds in the real storefront."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass

import pytest_asyncio

from shop_cli.local.processes import Process
from shop_lab.world.load_runs import LoadRun, run_load
from shop_lab.world.running_shop import RunningShop

# With this seed each persona begins at least two sessions early enough to end before the run does.
SEED = 18


@dataclass(frozen=True, slots=True)
class Visits:
    """A run of customers, and the number of charges that it led to."""

    run: LoadRun
    charges: int


def charges(shop: RunningShop) -> int:
    with closing(sqlite3.connect(shop.folder / ".shop" / "payment.db")) as ledger:
        (count,) = ledger.execute("SELECT count(*) FROM charges WHERE state = 'CHARGED'").fetchone()
    return int(count)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visits(shop: RunningShop, storefront: Process) -> Visits:
    before = charges(shop)
    finished = await run_load(f"http://{storefront.address}", rate=5, duration_seconds=8, seed=SEED)
    return Visits(finished, charges(shop) - before)


async def test_every_kind_of_customer_sees_what_it_should(visits: Visits) -> None:
    personas = {"window shopper", "buyer", "bargain hunter", "indecisive", "double clicker", "impatient"}
    assert (visits.run.status, visits.run.errors, visits.run.summary["errors"]) == (0, "", [])
    assert set(visits.run.summary["personas"]) == personas


async def test_customers_that_order_twice_are_charged_once(visits: Visits) -> None:
    """Sessions that the end of the run cut off may have ordered without seeing it."""
    orders = visits.run.summary["orders"]
    assert visits.run.summary["repeats"] >= 4
    assert orders <= visits.charges <= orders + 3
