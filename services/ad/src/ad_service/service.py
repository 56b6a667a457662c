"""Implements shop.AdService: translates between gRPC messages and the domain."""

from ad_service.domain import Inventory
from chassis.rpc.calls import ServicerContext
from chassis.values.datafile import DataFile
from shop import ad_pb2, ad_pb2_grpc


class AdService(ad_pb2_grpc.AdServiceServicer):
    """Serves the ads from the latest valid version of the data file."""

    def __init__(self, ads: DataFile[Inventory]) -> None:
        self._ads = ads

    async def GetAds(self, request: ad_pb2.AdRequest, context: ServicerContext) -> ad_pb2.AdResponse:
        ads = self._ads.value.select(request.context_keys)
        return ad_pb2.AdResponse(ads=[ad_pb2.Ad(redirect_url=ad.redirect_url, text=ad.text.strip()) for ad in ads])
