"""Entry point of the ad service: `python -m ad_service`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ad_service.service import AdService
from ad_service.store import parse_ads
from chassis.background import in_background
from chassis.rpc.server import Service, run
from chassis.settings import FilePath, ServiceSettings
from chassis.values.datafile import DataFile
from shop import ad_pb2_grpc


class Settings(ServiceSettings):
    ads_file: FilePath = Path(__file__).parent / "data" / "ads.json"


@asynccontextmanager
async def build(settings: Settings, service: Service) -> AsyncIterator[None]:
    ads = DataFile(settings.ads_file, parse_ads)
    service.add_servicer(ad_pb2_grpc.add_AdServiceServicer_to_server, AdService(ads))
    async with in_background(ads.watch):
        yield


if __name__ == "__main__":
    run("ad", Settings, build)
