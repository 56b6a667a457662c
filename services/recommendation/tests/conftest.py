from typing import Any

import pytest

from chassis.errors import Unavailable
from recommendation_service.clients import CachedCatalog
from shop.product_catalog_pb2 import ListProductsResponse, Product
from shop_kit.clock import Clock


class ProductCatalog:
    """A stub of a small product catalog. Tests change its products, or set `is_down` to make it fail."""

    def __init__(self) -> None:
        self.categories = {"pan": ["kitchen"], "knife": ["kitchen"], "tent": ["outdoors"]}
        self.is_down = False

    async def ListProducts(self, _request: object) -> ListProductsResponse:
        if self.is_down:
            raise Unavailable("down")
        return ListProductsResponse(products=[Product(id=id_, categories=of) for id_, of in self.categories.items()])


@pytest.fixture
def product_catalog() -> ProductCatalog:
    return ProductCatalog()


@pytest.fixture
async def catalog(product_catalog: Any, clock: Clock) -> CachedCatalog:
    """A catalog cache whose content expires after ten seconds."""
    return CachedCatalog(product_catalog, ttl_seconds=10, clock=clock)
