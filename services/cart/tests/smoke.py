from shop.cart_pb2 import GetCartRequest
from shop_smoke import SmokeCall


def smoke_call(unique: str) -> SmokeCall:
    """Get the empty cart of a new user."""
    return SmokeCall("shop.CartService/GetCart", GetCartRequest(user_id=unique))
