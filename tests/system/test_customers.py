"""Simulated customers of all kinds in the real storefront."""

from shop_kit.load_runs import figures_until, finish_load, start_load
from shop_kit.running_shop import RunningShop

# With this seed the first twelve customers are of all kinds, two of them double clickers and two impatient.
SEED = 1613


def captured(shop: RunningShop) -> int:
    return sum(charge.state == "CHARGED" for charge in shop.charges())


async def test_customers_of_every_kind_see_what_they_should_and_are_charged_once(shop: RunningShop) -> None:
    before, storefront = captured(shop), shop.processes["storefront"]
    process = await start_load(f"http://{storefront.address}", rate=5, seed=SEED, figures_seconds=0.5)
    await figures_until(process, lambda figures: figures["orders"] >= 8)
    process.terminate()
    finished = await finish_load(process)
    summary = finished.summary
    assert (finished.status, finished.errors, summary["errors"]) == (0, "", [])
    assert len(summary["personas"]) == 6
    assert summary["repeats"] > 0
    # Those who hang up have ordered without seeing it, if the run ends before they order again.
    assert summary["orders"] <= captured(shop) - before <= summary["orders"] + summary["personas"]["impatient"]
