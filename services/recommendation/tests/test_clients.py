"""The cached catalog, over a channel to the service and with the clock of conftest.py."""

import asyncio
from typing import Any

import pytest

from chassis.rpc import calls
from chassis.rpc.cache import RETRY_SECONDS
from recommendation_service.clients import CachedCatalog
from recommendation_service.domain import CatalogUnavailable

TTL_SECONDS = 10


async def refreshed(catalog: CachedCatalog) -> set[str]:
    """The ids in the cache after the background refresh has finished."""
    await catalog.current()
    await asyncio.gather(*catalog._cache._fetches.values(), return_exceptions=True)
    return set((await catalog.current()).ids)


async def test_products_come_with_their_categories(catalog: CachedCatalog) -> None:
    assert (await catalog.current()).related(["pan"]) == {"pan", "knife"}


async def test_a_fresh_catalog_is_not_read_again(catalog: CachedCatalog, product_catalog: Any, clock: Any) -> None:
    await catalog.current()
    clock.seconds = TTL_SECONDS - 1
    await refreshed(catalog)
    assert product_catalog.calls == 1


async def test_concurrent_first_reads_share_one_call(catalog: CachedCatalog, product_catalog: Any) -> None:
    await asyncio.gather(*(catalog.current() for _ in range(50)))
    assert product_catalog.calls == 1


async def test_an_expired_catalog_is_replaced(catalog: CachedCatalog, product_catalog: Any, clock: Any) -> None:
    await catalog.current()
    product_catalog.categories = {"axe": []}
    clock.seconds = TTL_SECONDS
    assert await refreshed(catalog) == {"axe"}


async def test_a_stale_catalog_is_served_without_waiting_for_its_refresh(
    catalog: CachedCatalog, product_catalog: Any, clock: Any
) -> None:
    await catalog.current()
    product_catalog.responds.clear()
    clock.seconds = TTL_SECONDS
    for _ in range(50):
        await catalog.current()
    product_catalog.responds.set()
    await refreshed(catalog)
    assert product_catalog.calls == 2


async def test_a_stale_catalog_is_served_while_the_product_catalog_is_down(
    catalog: CachedCatalog, product_catalog: Any, clock: Any
) -> None:
    await catalog.current()
    product_catalog.is_down = True
    clock.seconds = 1000 * TTL_SECONDS
    assert await refreshed(catalog) == {"pan", "knife", "tent"}


async def test_a_failed_refresh_is_not_retried_on_every_call(
    catalog: CachedCatalog, product_catalog: Any, clock: Any
) -> None:
    await catalog.current()
    product_catalog.is_down = True
    clock.seconds = TTL_SECONDS
    for _ in range(10):
        await refreshed(catalog)
    assert product_catalog.calls == 2


async def test_the_catalog_is_read_again_after_an_outage(
    catalog: CachedCatalog, product_catalog: Any, clock: Any
) -> None:
    await catalog.current()
    product_catalog.is_down = True
    clock.seconds = TTL_SECONDS
    await refreshed(catalog)
    product_catalog.is_down, product_catalog.categories = False, {"axe": []}
    clock.seconds += RETRY_SECONDS
    assert await refreshed(catalog) == {"axe"}


async def test_without_a_first_read_the_catalog_is_unavailable(catalog: CachedCatalog, product_catalog: Any) -> None:
    product_catalog.is_down = True
    with pytest.raises(CatalogUnavailable):
        await catalog.current()


async def test_a_failed_first_read_is_retried_by_the_next_call(catalog: CachedCatalog, product_catalog: Any) -> None:
    product_catalog.is_down = True
    with pytest.raises(CatalogUnavailable):
        await catalog.current()
    product_catalog.is_down = False
    assert (await catalog.current()).ids


async def test_cancelling_one_caller_does_not_fail_the_others(catalog: CachedCatalog, product_catalog: Any) -> None:
    product_catalog.responds.clear()
    cancelled, waiting = asyncio.create_task(catalog.current()), asyncio.create_task(catalog.current())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    product_catalog.responds.set()
    assert (await waiting).ids


async def test_a_refresh_is_not_bound_by_the_deadline_of_the_call_that_starts_it(
    catalog: CachedCatalog, product_catalog: Any, clock: Any
) -> None:
    await catalog.current()
    product_catalog.categories = {"axe": []}
    clock.seconds = TTL_SECONDS
    calls.deadline.set(0.0)
    assert await refreshed(catalog) == {"axe"}
