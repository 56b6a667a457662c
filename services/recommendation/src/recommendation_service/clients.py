"""The product catalog, read from its service and cached."""

import time
from collections.abc import Callable

from typing_extensions import override

from chassis.errors import DomainError
from chassis.rpc.cache import TtlCache
from chassis.telemetry.instruments import Telemetry
from recommendation_service.domain import Catalog, CatalogSource, CatalogUnavailable, Product
from shop import empty_pb2, product_catalog_pb2_grpc

_ALL_PRODUCTS = "all products"


class CachedCatalog(CatalogSource):
    """Caches the catalog. Only the first read blocks callers; later a stale catalog is served during its refresh.

    Args:
        stub: the product-catalog service.
        ttl_seconds: age at which the catalog is refreshed in the background.
        telemetry: counts lookups; by default none.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        stub: product_catalog_pb2_grpc.ProductCatalogServiceStub,
        ttl_seconds: float,
        telemetry: Telemetry | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub = stub
        self._cache = TtlCache(self._fetch, ttl_seconds, "catalog", telemetry, serve_stale=True, clock=clock)

    @override
    async def current(self) -> Catalog:
        try:
            (catalog,) = await self._cache.get(_ALL_PRODUCTS)
        except DomainError as error:
            raise CatalogUnavailable from error
        return catalog

    async def aclose(self) -> None:
        """Cancel a read in progress."""
        await self._cache.aclose()

    async def _fetch(self, _key: str) -> Catalog:
        response = await self._stub.ListProducts(empty_pb2.Empty())
        return Catalog(
            Product(product.id, tuple(product.categories), product.price_usd.units) for product in response.products
        )
