"""Implements shop.ProductCatalogService: translates between gRPC messages and the domain."""

from chassis.rpc.calls import ServicerContext
from chassis.rpc.client import MAX_RESPONSE_BYTES
from chassis.rpc.wire import money_to_wire
from chassis.values.datafile import DataFile
from product_catalog_service.domain import Catalog, Product
from shop import empty_pb2, product_catalog_pb2, product_catalog_pb2_grpc


class CatalogMessages:
    """A catalog and its products as gRPC messages, built only once. Raises ValueError if they are too large to send."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.products = {product.id: _product_to_wire(product) for product in catalog.products}
        self.listing = product_catalog_pb2.ListProductsResponse(products=self.products.values())
        if self.listing.ByteSize() > MAX_RESPONSE_BYTES:
            raise ValueError(f"the products must fit into a response of {MAX_RESPONSE_BYTES // 2**20} MiB")


class ProductCatalogService(product_catalog_pb2_grpc.ProductCatalogServiceServicer):
    """Serves the products from the latest valid version of the data file."""

    def __init__(self, catalog: DataFile[CatalogMessages]) -> None:
        self._catalog = catalog

    async def ListProducts(
        self, request: empty_pb2.Empty, context: ServicerContext
    ) -> product_catalog_pb2.ListProductsResponse:
        return self._catalog.value.listing

    async def GetProduct(
        self, request: product_catalog_pb2.GetProductRequest, context: ServicerContext
    ) -> product_catalog_pb2.Product:
        current = self._catalog.value
        return current.products[current.catalog.find(request.id).id]

    async def SearchProducts(
        self, request: product_catalog_pb2.SearchProductsRequest, context: ServicerContext
    ) -> product_catalog_pb2.SearchProductsResponse:
        current = self._catalog.value
        found = current.catalog.search(request.query)
        return product_catalog_pb2.SearchProductsResponse(results=[current.products[product.id] for product in found])


def _product_to_wire(product: Product) -> product_catalog_pb2.Product:
    return product_catalog_pb2.Product(
        id=product.id,
        name=product.name.strip(),
        description=product.description.strip(),
        picture=product.picture,
        price_usd=money_to_wire(product.price),
        categories=map(str.strip, product.categories),
    )
