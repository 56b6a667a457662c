"""shop.ProductCatalogService: from the wire to the domain and back."""

from chassis.datafile import DataFile
from chassis.serving import ServicerContext
from chassis.wire import money_to_wire
from product_catalog_service.domain import Catalog, Product
from shop import empty_pb2, product_catalog_pb2, product_catalog_pb2_grpc


class Shelf:
    """A catalog with the messages of its products, built once and not for each call."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._messages = {product.id: _to_wire(product) for product in catalog.products}
        self.listing = product_catalog_pb2.ListProductsResponse(products=self._messages.values())

    def find(self, product_id: str) -> product_catalog_pb2.Product:
        """Look up the product with this id."""
        return self._messages[self._catalog.find(product_id).id]

    def search(self, query: str) -> product_catalog_pb2.SearchProductsResponse:
        """Find products by words; the best ones first."""
        found = self._catalog.search(query)
        return product_catalog_pb2.SearchProductsResponse(results=[self._messages[product.id] for product in found])


class ProductCatalogService(product_catalog_pb2_grpc.ProductCatalogServiceServicer):
    """Answers with the products that the file holds at the moment of the call."""

    def __init__(self, shelf: DataFile[Shelf]) -> None:
        self._shelf = shelf

    async def ListProducts(
        self, request: empty_pb2.Empty, context: ServicerContext
    ) -> product_catalog_pb2.ListProductsResponse:
        """All products."""
        return self._shelf.value.listing

    async def GetProduct(
        self, request: product_catalog_pb2.GetProductRequest, context: ServicerContext
    ) -> product_catalog_pb2.Product:
        """One product."""
        return self._shelf.value.find(request.id)

    async def SearchProducts(
        self, request: product_catalog_pb2.SearchProductsRequest, context: ServicerContext
    ) -> product_catalog_pb2.SearchProductsResponse:
        """Products that match a query, the best ones first."""
        return self._shelf.value.search(request.query)


def _to_wire(product: Product) -> product_catalog_pb2.Product:
    return product_catalog_pb2.Product(
        id=product.id,
        name=product.name,
        description=product.description,
        picture=product.picture,
        price_usd=money_to_wire(product.price),
        categories=product.categories,
    )
