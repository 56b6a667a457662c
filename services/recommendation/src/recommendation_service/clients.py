import time
from collections.abc import Callable

from chassis.cache import TtlCache
from chassis.errors import DomainError
from chassis.telemetry.instruments import Telemetry
from recommendation_service.domain import Catalog, CatalogUnavailable, Product
from shop import empty_pb2, product_catalog_pb2_grpc


class CachedCatalog:
    """Caches the product catalog. Only the first callers wait; during a refresh, callers get the stale catalog."""

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

    async def current(self) -> Catalog:
        """Return the latest catalog. Raise CatalogUnavailable if no catalog has been read yet."""
        try:
            (catalog,) = await self._cache.get("all products")
        except DomainError as error:
            raise CatalogUnavailable("the product catalog is unavailable", retry_after_seconds=1) from error
        return catalog

    async def _fetch(self, _key: str) -> Catalog:
        response = await self._stub.ListProducts(empty_pb2.Empty())
        return Catalog(
            Product(product.id, tuple(product.categories), product.price_usd.units) for product in response.products
        )
