"""`python -m product_catalog_service` serves products: settings, then the objects made of them, then the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import FilePath

from chassis.datafile import DataFile
from chassis.server import Service, run
from chassis.settings import ServiceSettings
from product_catalog_service.service import ProductCatalogService, Shelf
from product_catalog_service.store import parse_catalog
from shop import product_catalog_pb2_grpc


class Settings(ServiceSettings):
    """What the product catalog can be told."""

    catalog_file: FilePath = Path(__file__).parent / "data" / "products.json"


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Serve the products of the file, and follow its changes."""
    shelf = DataFile(settings.catalog_file, lambda raw: Shelf(parse_catalog(raw)))
    service.add_servicer(
        product_catalog_pb2_grpc.add_ProductCatalogServiceServicer_to_server, ProductCatalogService(shelf)
    )
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(shelf.watch(), name="watch products")
        yield
        watch.cancel()


if __name__ == "__main__":
    run("product-catalog", Settings, build)
