from shop.ad_pb2 import AdRequest
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Get ads for a page about kitchens."""
    return SmokeCall("shop.AdService/GetAds", AdRequest(context_keys=["kitchen"]))
