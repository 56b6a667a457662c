"""The smoke call of the cart service."""

from chassis.rpc.smoke import SmokeCall
from shop.cart_pb2 import GetCartRequest


def smoke_call(unique: str) -> SmokeCall:
    """Get the empty cart of a new user."""
    return SmokeCall("shop.CartService/GetCart", GetCartRequest(user_id=unique))
