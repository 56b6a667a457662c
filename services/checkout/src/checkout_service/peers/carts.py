"""Removes ordered items from carts. The module `quotes` reads carts."""

import asyncio
from collections.abc import Awaitable, Sequence

from chassis.errors import Unavailable, Unimplemented
from chassis.rpc.wire import item_to_wire
from chassis.telemetry.instruments import Telemetry
from checkout_service.domain import Order
from checkout_service.peers.batches import Batches, Reply
from checkout_service.peers.internal_service import InternalService
from checkout_service.ports import Entry
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_internal import ordered_cart_pb2
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub

# While a call is in progress, removals wait up to this long so that they can share the next call.
DELAY_SECONDS = 0.02


class CartClient:
    """Removes ordered items from many carts in one internal call.

    If the cart service doesn't offer the internal API, EmptyCart is called instead. It leaves a cart unchanged if the
    cart's etag has changed since the order, and always empties a cart without an etag. Only a service with the
    internal API reports generations. If a cart still has the ordered one, EmptyCart isn't called; the outbox retries.
    """

    def __init__(self, carts: CartServiceStub, ordered_carts: OrderedCartStub, telemetry: Telemetry) -> None:
        self._carts = carts
        self._ordered_carts = ordered_carts
        self._internal = InternalService("shop.internal.OrderedCart")
        self._batches = Batches(
            "removals from carts", self._remove_all, self._remove, telemetry, delay_seconds=DELAY_SECONDS, eager=True
        )

    def remove_ordered(self, entry: Entry) -> asyncio.Future[None]:
        """Remove the ordered items from the user's cart: see `ports.Sender`."""
        return self._batches.send(entry.order)

    def _remove_all(self, batch: Sequence[Order]) -> Awaitable[Reply]:
        request = ordered_cart_pb2.RemoveAllOrderedRequest(removals=map(_removal_to_wire, batch))
        return self._ordered_carts.RemoveAllOrdered(request)

    async def _remove(self, order: Order) -> None:
        try:
            await self._internal.call(self._ordered_carts.RemoveOrdered, _removal_to_wire(order))
        except Unimplemented:
            await self._empty(order)

    async def _empty(self, order: Order) -> None:
        call = self._carts.GetCart(cart_pb2.GetCartRequest(user_id=order.user_id))
        await call
        if ("cart-generation", order.cart_generation) in tuple(await call.trailing_metadata() or ()):
            # EmptyCart compares only etags, so if called with a generation, it would leave the items in the cart.
            raise Unavailable("the cart has a generation but no internal service", reason=Unimplemented.default_reason)
        # Without the etag, EmptyCart would also remove items that were added during checkout.
        metadata = (("if-match", order.cart_generation),) if order.cart_generation else ()
        await self._carts.EmptyCart(cart_pb2.EmptyCartRequest(user_id=order.user_id), metadata=metadata)


def _removal_to_wire(order: Order) -> ordered_cart_pb2.RemoveOrderedRequest:
    return ordered_cart_pb2.RemoveOrderedRequest(
        user_id=order.user_id, etag=order.cart_generation, order_id=order.order_id, items=map(item_to_wire, order.lines)
    )
