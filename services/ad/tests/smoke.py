"""The smoke call of the ad service."""

from chassis.rpc.smoke import SmokeCall
from shop.ad_pb2 import AdRequest


def smoke_call(unique: str) -> SmokeCall:
    """Get the ads of a page about kitchens."""
    return SmokeCall("shop.AdService/GetAds", AdRequest(context_keys=["kitchen"]))
