"""Entry point of the recommendation service: `python -m recommendation_service`."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from chassis.background import in_background
from chassis.rpc.server import Service, run
from chassis.settings import FilePath, PositiveFloat, ServiceSettings
from chassis.values.datafile import DataFile
from recommendation_service.clients import CachedCatalog
from recommendation_service.domain import Catalog, Ranking, same_category, same_price_band
from recommendation_service.service import RecommendationService
from recommendation_service.store import parse_purchases
from shop import product_catalog_pb2_grpc, recommendation_pb2_grpc


class Settings(ServiceSettings):
    product_catalog_addr: str
    catalog_ttl_seconds: PositiveFloat = 60
    # v1 recommends products in the same category, v2 products bought together, v3 products in the same price band.
    recommendation_version: Literal["v1", "v2", "v3"] = "v1"
    purchases_file: FilePath = Path(__file__).parent / "data" / "purchases.json"


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    channel = service.channel(
        settings.product_catalog_addr, "shop.ProductCatalogService", timeout_seconds=2, retryable=["ListProducts"]
    )
    stub = product_catalog_pb2_grpc.ProductCatalogServiceStub(channel)
    purchases = DataFile(settings.purchases_file, parse_purchases)

    def bought_together(catalog: Catalog, given: Sequence[str]) -> Sequence[Collection[str]]:
        return purchases.value.rank(catalog, given)  # read the value on each call, because the file may have changed

    rankings: dict[str, Ranking] = {"v1": same_category, "v2": bought_together, "v3": same_price_band}
    version = settings.recommendation_version
    catalog = CachedCatalog(stub, settings.catalog_ttl_seconds, service.telemetry)
    async with in_background(purchases.watch):
        servicer = RecommendationService(catalog.current, version, rankings[version])
        service.add_servicer(recommendation_pb2_grpc.add_RecommendationServiceServicer_to_server, servicer)
        yield


if __name__ == "__main__":
    run("recommendation", Settings, build)
