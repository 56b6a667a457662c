"""A cart service whose answers a test decides, to test what surrounds every servicer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from shop import cart_pb2, cart_pb2_grpc, empty_pb2
from shop_internal import ordered_cart_pb2, ordered_cart_pb2_grpc

REGISTER = cart_pb2_grpc.add_CartServiceServicer_to_server
REGISTER_INTERNAL = ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Context], Awaitable[cart_pb2.Cart] | cart_pb2.Cart | None]


class Carts(cart_pb2_grpc.CartServiceServicer):
    """GetCart returns the cart of the handler that a test passes, else an empty one. The other methods do nothing."""

    def __init__(self, handle: Handler | None = None) -> None:
        self.handle = handle

    async def GetCart(self, request: cart_pb2.GetCartRequest, context: Context) -> cart_pb2.Cart:
        found = self.handle(context) if self.handle else None
        cart = await found if isinstance(found, Awaitable) else found
        return cart_pb2.Cart(user_id=request.user_id) if cart is None else cart

    async def AddItem(self, request: cart_pb2.AddItemRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: Context) -> empty_pb2.Empty:
        return empty_pb2.Empty()


class HeldCarts(Carts):
    """Every GetCart waits until the test sets `released`; `entered` counts them."""

    def __init__(self) -> None:
        super().__init__(self.hold)
        self.entered = 0
        self.released = asyncio.Event()

    async def hold(self, _context: Context) -> cart_pb2.Cart:
        self.entered += 1
        await self.released.wait()
        return cart_pb2.Cart(user_id="held")


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
