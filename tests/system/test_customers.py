"""Simulated customers of all kinds in the real storefront."""

from shop_cli.local.processes import Process
from shop_kit.load_runs import run_load
from shop_kit.running_shop import RunningShop

# With this seed each persona begins at least two sessions early enough to end before the run does.
SEED = 18


def captured(shop: RunningShop) -> int:
    return sum(charge.state == "CHARGED" for charge in shop.charges())


async def test_customers_of_every_kind_see_what_they_should_and_are_charged_once(
    shop: RunningShop, storefront: Process
) -> None:
    personas = {"window shopper", "buyer", "bargain hunter", "indecisive", "double clicker", "impatient"}
    before = captured(shop)
    finished = await run_load(f"http://{storefront.address}", rate=5, duration_seconds=8, seed=SEED)
    summary = finished.summary
    assert (finished.status, finished.errors, summary["errors"]) == (0, "", [])
    assert set(summary["personas"]) == personas
    assert summary["repeats"] >= 4
    # Sessions that the end of the run cut off may have ordered without seeing it.
    assert summary["orders"] <= captured(shop) - before <= summary["orders"] + 3
