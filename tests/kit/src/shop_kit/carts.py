"""A cart service whose answers a test decides, to test what surrounds every servicer."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from shop import cart_pb2, cart_pb2_grpc, empty_pb2
from shop_internal import ordered_cart_pb2, ordered_cart_pb2_grpc

REGISTER = cart_pb2_grpc.add_CartServiceServicer_to_server
REGISTER_INTERNAL = ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Context], Awaitable[cart_pb2.Cart]]


class Carts(cart_pb2_grpc.CartServiceServicer):
    """GetCart calls the handler that a test passes, or returns an empty cart. The other methods do nothing."""

    def __init__(self, handle: Handler | None = None) -> None:
        self.handle = handle

    async def GetCart(self, request: cart_pb2.GetCartRequest, context: Context) -> cart_pb2.Cart:
        return await self.handle(context) if self.handle else cart_pb2.Cart(user_id=request.user_id)

    async def AddItem(self, request: cart_pb2.AddItemRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()


class OrderedCarts(ordered_cart_pb2_grpc.OrderedCartServicer):
    """The internal service, which does nothing."""

    async def RemoveOrdered(
        self, request: ordered_cart_pb2.RemoveOrderedRequest, context: Context
    ) -> ordered_cart_pb2.RemoveOrderedResponse:
        return ordered_cart_pb2.RemoveOrderedResponse()

    async def RemoveAllOrdered(
        self, request: ordered_cart_pb2.RemoveAllOrderedRequest, context: Context
    ) -> ordered_cart_pb2.RemoveAllOrderedResponse:
        return ordered_cart_pb2.RemoveAllOrderedResponse()


def raising(error: Exception) -> Handler:
    """Return a handler that fails with this error."""

    async def fail(_context: Context) -> cart_pb2.Cart:
        raise error

    return fail
