from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from chassis.errors import Unavailable
from chassis.rpc.client import channel
from recommendation_service.clients import CachedCatalog
from shop import empty_pb2, product_catalog_pb2
from shop.product_catalog_pb2_grpc import (
    ProductCatalogServiceServicer,
    ProductCatalogServiceStub,
    add_ProductCatalogServiceServicer_to_server,
)
from shop_kit.clock import Clock
from shop_kit.serving import serve


class ProductCatalog(ProductCatalogServiceServicer):
    """A small catalog; tests change its products or make it fail (`is_down`)."""

    def __init__(self) -> None:
        self.categories = {"pan": ["kitchen"], "knife": ["kitchen"], "tent": ["outdoors"]}
        self.is_down = False

    async def ListProducts(self, request: empty_pb2.Empty, context: Any) -> product_catalog_pb2.ListProductsResponse:
        if self.is_down:
            raise Unavailable("down")
        products = [product_catalog_pb2.Product(id=id_, categories=of) for id_, of in self.categories.items()]
        return product_catalog_pb2.ListProductsResponse(products=products)

    async def GetProduct(self, request: Any, context: Any) -> product_catalog_pb2.Product:
        raise NotImplementedError

    async def SearchProducts(self, request: Any, context: Any) -> product_catalog_pb2.SearchProductsResponse:
        raise NotImplementedError


@pytest.fixture
async def product_catalog() -> ProductCatalog:
    return ProductCatalog()


@pytest.fixture
async def catalog(product_catalog: ProductCatalog, clock: Clock) -> AsyncIterator[CachedCatalog]:
    """The cached catalog, over a real channel; it expires after ten seconds."""
    async with serve((add_ProductCatalogServiceServicer_to_server, product_catalog)) as address:
        opened = channel(address, "shop.ProductCatalogService", timeout_seconds=30)
        async with aclosing(CachedCatalog(ProductCatalogServiceStub(opened), ttl_seconds=10, clock=clock)) as cached:
            yield cached
        await opened.close()
