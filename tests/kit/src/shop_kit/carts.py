"""A cart service whose answers a test decides, to test what surrounds every servicer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from typing_extensions import override

from shop.cart_pb2 import Cart, GetCartRequest
from shop_kit.fake_peers.reads import FakeCart

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Context], Awaitable[Cart] | Cart | None]


class Carts(FakeCart):
    """GetCart returns the cart of the handler that a test passes, else an empty one."""

    def __init__(self, handle: Handler | None = None) -> None:
        super().__init__()
        self.handle = handle

    @override
    async def GetCart(self, request: GetCartRequest, context: Context) -> Cart:
        found = self.handle(context) if self.handle else None
        cart = await found if isinstance(found, Awaitable) else found
        return Cart(user_id=request.user_id) if cart is None else cart


class HeldCarts(Carts):
    """Every GetCart waits until the test sets `released`; `entered` counts them."""

    def __init__(self) -> None:
        super().__init__(self.wait)
        self.entered = 0
        self.released = asyncio.Event()

    async def wait(self, _context: Context) -> Cart:
        self.entered += 1
        await self.released.wait()
        return Cart(user_id="held")


def raising(error: Exception) -> Handler:
    """Return a handler that fails with this error."""

    async def fail(_context: Context) -> Cart:
        raise error

    return fail
