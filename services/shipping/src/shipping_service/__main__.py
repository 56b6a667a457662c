"""`python -m shipping_service` runs the service; `python -m shipping_service migrate` only migrates its database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from chassis.background import in_background
from chassis.rpc.server import Service, run
from chassis.settings import FilePath, PositiveFloat, SecretStr, ServiceSettings
from chassis.sql.settings import DatabaseUrl
from chassis.values.datafile import DataFile
from shipping_service.domain import Shipper
from shipping_service.manifest.sql import MIGRATIONS, open_manifest
from shipping_service.service import ShippingService
from shipping_service.store import parse_rate_card
from shop import shipping_pb2_grpc
from shop_internal import shipment_manifest_pb2_grpc


class Settings(ServiceSettings):
    database_url: DatabaseUrl = SecretStr("sqlite:///.shop/shipping.db")
    rate_card_file: FilePath = Path(__file__).parent / "data" / "rate-card.json"
    # How long the manifest keeps entries. Once an entry is deleted, a retry with the same key ships the order again.
    retention_days: PositiveFloat = 365


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    """Open the manifest, register both servicers, and run the background tasks."""
    rate_card = DataFile(settings.rate_card_file, parse_rate_card)
    async with open_manifest(settings.database_url.get_secret_value(), service.telemetry) as manifest:
        retention = partial(manifest.deletions.run, settings.retention_days, service.telemetry)
        service.readiness_checks.append(manifest.check)
        shipping = ShippingService(rate_card, Shipper(manifest), manifest)
        service.add_servicer(shipping_pb2_grpc.add_ShippingServiceServicer_to_server, shipping)
        service.add_internal_servicer(shipment_manifest_pb2_grpc.add_ShipmentManifestServicer_to_server, shipping)
        async with in_background(rate_card.watch, retention):
            yield


if __name__ == "__main__":
    run("shipping", Settings, build, migrations=MIGRATIONS)
