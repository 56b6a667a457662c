import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from chassis.cache import TtlCache
from chassis.errors import DomainError
from chassis.telemetry.instruments import Telemetry
from shop import empty_pb2
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub

log = structlog.get_logger()

TTL_SECONDS = 60.0
WAIT_SECONDS = 0.3
"""How long a confirmation waits for names that are not cached yet."""
RETRY_SECONDS = 5.0
"""How long confirmations show product ids instead of names after the catalog could not be read."""

MAX_NAME_LENGTH = 256


class ProductNames:
    """Caches product names from the catalog. After the first read, returns stale names during a refresh."""

    def __init__(
        self,
        stub: ProductCatalogServiceStub,
        telemetry: Telemetry | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._clock = clock
        self._cache = TtlCache(self._fetch, TTL_SECONDS, "product names", telemetry, serve_stale=True, clock=clock)
        self._wait_again_at = 0.0

    async def current(self) -> Mapping[str, str]:
        """Return names by product id, or an empty mapping if they are not available in time."""
        if self._clock() < self._wait_again_at:
            return {}
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                (names,) = await self._cache.get("all products")
        except (DomainError, TimeoutError) as error:
            log.warning("confirmations show product ids instead of names", error=type(error).__name__)
            self._wait_again_at = self._clock() + RETRY_SECONDS
            return {}
        return names

    async def _fetch(self, _key: str) -> Mapping[str, str]:
        response = await self._stub.ListProducts(empty_pb2.Empty())
        # A confirmation shows each product on one line, so remove line breaks from names.
        return {product.id: " ".join(product.name.split())[:MAX_NAME_LENGTH] for product in response.products}
