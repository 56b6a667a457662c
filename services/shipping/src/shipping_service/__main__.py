"""Entry point of the shipping service: `python -m shipping_service`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import FilePath

from chassis.datafile import DataFile
from chassis.server import Service, run
from chassis.settings import ServiceSettings
from shipping_service.domain import Shipper
from shipping_service.manifest import open_manifest
from shipping_service.service import ShippingService
from shipping_service.store import parse_rate_card
from shop import shipping_pb2_grpc


class Settings(ServiceSettings):
    """Settings of the shipping service, read from the environment."""

    rate_card_file: FilePath = Path(__file__).parent / "data" / "rate-card.json"
    # The manifest of accepted shipments, one line each; none if unset.
    shipments_file: Path | None = None


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    rate_card = DataFile(settings.rate_card_file, parse_rate_card)
    async with open_manifest(settings.shipments_file) as manifest, asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(rate_card.watch(), name="watch rate card")
        servicer = ShippingService(rate_card, Shipper(manifest), service.failpoints)
        service.add_servicer(shipping_pb2_grpc.add_ShippingServiceServicer_to_server, servicer)
        yield
        watch.cancel()


if __name__ == "__main__":
    run("shipping", Settings, build)
