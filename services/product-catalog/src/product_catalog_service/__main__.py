"""Entry point of the product catalog: `python -m product_catalog_service`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from chassis.background import in_background
from chassis.rpc.server import Service, run
from chassis.settings import FilePath, ServiceSettings
from chassis.values.datafile import DataFile
from product_catalog_service.service import CatalogMessages, ProductCatalogService
from product_catalog_service.store import parse_catalog
from shop import product_catalog_pb2_grpc


class Settings(ServiceSettings):
    catalog_file: FilePath = Path(__file__).parent / "data" / "products.json"


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    catalog = DataFile(settings.catalog_file, lambda raw: CatalogMessages(parse_catalog(raw)))
    service.add_servicer(
        product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, ProductCatalogService(catalog)
    )
    async with in_background(catalog.watch):
        yield


if __name__ == "__main__":
    run("product-catalog", Settings, build)
