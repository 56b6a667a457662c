"""The cached catalog, over a channel to the service and with a clock that the tests set."""

import asyncio
from typing import Any

from chassis.rpc.cache import RETRY_SECONDS
from recommendation_service.clients import CachedCatalog
from shop_kit.clock import Clock

TTL_SECONDS = 10


async def refreshed(catalog: CachedCatalog) -> set[str]:
    """The ids in the cache after the background refresh has finished."""
    await catalog.current()
    await asyncio.gather(*catalog._cache._fetches.values(), return_exceptions=True)
    return set((await catalog.current()).ids)


async def test_an_expired_catalog_is_replaced(catalog: CachedCatalog, product_catalog: Any, clock: Clock) -> None:
    await catalog.current()
    product_catalog.categories = {"axe": []}
    clock.seconds += TTL_SECONDS
    assert await refreshed(catalog) == {"axe"}


async def test_a_stale_catalog_is_served_without_waiting_for_its_refresh(
    catalog: CachedCatalog, product_catalog: Any, clock: Clock
) -> None:
    await catalog.current()
    product_catalog.responds.clear()
    clock.seconds += TTL_SECONDS
    for _ in range(50):
        await catalog.current()
    product_catalog.responds.set()
    await refreshed(catalog)
    assert product_catalog.calls == 2


async def test_a_failed_refresh_is_not_retried_on_every_call(
    catalog: CachedCatalog, product_catalog: Any, clock: Clock
) -> None:
    await catalog.current()
    product_catalog.is_down = True
    clock.seconds += TTL_SECONDS
    for _ in range(10):
        await refreshed(catalog)
    assert product_catalog.calls == 2


async def test_the_catalog_is_read_again_after_an_outage(
    catalog: CachedCatalog, product_catalog: Any, clock: Clock
) -> None:
    await catalog.current()
    product_catalog.is_down = True
    clock.seconds += TTL_SECONDS
    await refreshed(catalog)
    product_catalog.is_down, product_catalog.categories = False, {"axe": []}
    clock.seconds += RETRY_SECONDS
    assert await refreshed(catalog) == {"axe"}
