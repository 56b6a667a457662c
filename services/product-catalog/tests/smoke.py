from shop.product_catalog_pb2 import GetProductRequest
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Get one product."""
    return SmokeCall("shop.ProductCatalogService/GetProduct", GetProductRequest(id="cast-iron-pan"))
