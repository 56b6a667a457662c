"""Names of products, read from the catalog and cached."""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog
from typing_extensions import override

from chassis.errors import DomainError
from chassis.rpc.cache import TtlCache
from chassis.telemetry.instruments import Telemetry
from email_service.domain import ProductNames
from shop import empty_pb2, product_catalog_pb2_grpc

log = structlog.get_logger()

TTL_SECONDS = 60.0
WAIT_SECONDS = 0.3
"""The longest time for which an e-mail waits for the first names."""

RETRY_SECONDS = 5.0
"""How long e-mails do not wait after they waited in vain."""

_ALL_PRODUCTS = "all products"


class NoNames(ProductNames):
    """For an email service that has no catalog."""

    @override
    async def current(self) -> Mapping[str, str]:
        return {}


class CatalogNames(ProductNames):
    """Names from the product catalog. Once read, stale ones are served while they are read again.

    Args:
        stub: the product-catalog service.
        telemetry: counts lookups; by default none.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        stub: product_catalog_pb2_grpc.ProductCatalogServiceStub,
        telemetry: Telemetry | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._clock = clock
        self._cache = TtlCache(self._fetch, TTL_SECONDS, "product names", telemetry, serve_stale=True, clock=clock)
        self._wait_again_at = 0.0

    @override
    async def current(self) -> Mapping[str, str]:
        if self._clock() < self._wait_again_at:
            return {}
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                (names,) = await self._cache.get(_ALL_PRODUCTS)
        except (DomainError, TimeoutError) as error:
            log.warning("e-mails have ids of products instead of names", error=type(error).__name__)
            self._wait_again_at = self._clock() + RETRY_SECONDS
            return {}
        return names

    async def aclose(self) -> None:
        """Cancel a read in progress."""
        await self._cache.aclose()

    async def _fetch(self, _key: str) -> Mapping[str, str]:
        response = await self._stub.ListProducts(empty_pb2.Empty())
        # A name from elsewhere may have line breaks, and a line of an e-mail is one product.
        return {product.id: " ".join(product.name.split()) for product in response.products}
