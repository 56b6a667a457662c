"""Entry point of the recommendation service: `python -m recommendation_service`."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from chassis.rpc.server import Service, run
from chassis.settings import PositiveFloat, ServiceSettings
from recommendation_service.clients import CachedCatalog
from recommendation_service.service import RecommendationService
from shop import product_catalog_pb2_grpc, recommendation_pb2_grpc


class Settings(ServiceSettings):
    """Settings of the recommendation service, read from the environment."""

    product_catalog_addr: str
    catalog_ttl_seconds: PositiveFloat = 60


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    channel = service.channel(
        settings.product_catalog_addr, "shop.ProductCatalogService", timeout_seconds=2, retryable=["ListProducts"]
    )
    stub = product_catalog_pb2_grpc.ProductCatalogServiceStub(channel)
    async with aclosing(CachedCatalog(stub, settings.catalog_ttl_seconds, service.telemetry)) as catalog:
        service.add_servicer(
            recommendation_pb2_grpc.add_RecommendationServiceServicer_to_server, RecommendationService(catalog)
        )
        yield


if __name__ == "__main__":
    run("recommendation", Settings, build)
