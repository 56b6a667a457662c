from collections.abc import Mapping

from chassis.cache import TtlCache
from chassis.rpc.client import Check
from chassis.rpc.wire import is_price, money_from_wire
from chassis.telemetry.instruments import Telemetry
from shop import empty_pb2, product_catalog_pb2
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from storefront_service.domain import Catalog, Product

_TTL_SECONDS = 10.0


class CatalogClient:
    """Caches the product catalog and searches it. Serves a stale catalog during a refresh, or if the refresh fails."""

    def __init__(self, stub: ProductCatalogServiceStub, telemetry: Telemetry) -> None:
        self._stub = stub
        self._cache = TtlCache(self._fetch, _TTL_SECONDS, "catalog", telemetry, serve_stale=True)

    async def current(self) -> Catalog:
        """Return the catalog. Raise DomainError if it cannot be read and no older catalog is cached."""
        (catalog,) = await self._cache.get("catalog")
        return catalog

    async def search(self, query: str) -> list[Product]:
        """Return matching products, best match first. Raise DomainError if the search fails."""
        found = await self._stub.SearchProducts(product_catalog_pb2.SearchProductsRequest(query=query))
        return [_from_wire(product) for product in found.results]

    async def _fetch(self, _key: str) -> Catalog:
        response = await self._stub.ListProducts(empty_pb2.Empty())
        return Catalog([_from_wire(product) for product in response.products])


def _check_prices(field: str) -> Check:
    return lambda _request, found, _: [
        (f"{field}.price_usd", all(is_price(product.price_usd, "USD") for product in getattr(found, field)))
    ]


CHECKS: Mapping[str, Check] = {
    "shop.ProductCatalogService/ListProducts": _check_prices("products"),
    "shop.ProductCatalogService/SearchProducts": _check_prices("results"),
}
"""Response checks that reject products with invalid prices. Without them, converting the prices would fail, and logs
would blame the currency service."""


def _from_wire(message: product_catalog_pb2.Product) -> Product:
    return Product(
        id=message.id,
        name=message.name,
        description=message.description,
        picture=message.picture,
        price=money_from_wire(message.price_usd),
        categories=tuple(message.categories),
    )
