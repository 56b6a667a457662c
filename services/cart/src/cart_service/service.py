"""Implements shop.CartService, shop.internal.CartLines and shop.internal.OrderedCart on top of a cart store."""

import asyncio

from cart_service.domain import Addition, CartStore, NewQuantity, Purchase, check_user_id, generation_of, new_etag
from chassis.errors import REFUSALS
from chassis.rpc.calls import ServicerContext, metadata_of
from chassis.rpc.wire import item_to_wire, items_from_wire
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from chassis.values.fields import limit_count, require_present
from shop import cart_pb2, cart_pb2_grpc, empty_pb2
from shop_internal import cart_lines_pb2, cart_lines_pb2_grpc, ordered_cart_pb2_grpc
from shop_internal import ordered_cart_pb2 as pb2

_MAX_REMOVALS = 100


class CartService(
    cart_pb2_grpc.CartServiceServicer, cart_lines_pb2_grpc.CartLinesServicer, ordered_cart_pb2_grpc.OrderedCartServicer
):
    def __init__(self, carts: CartStore, telemetry: Telemetry) -> None:
        self._carts = carts
        self._items_added = telemetry.counter(semconv.CART_ITEMS_ADDED)

    async def AddItem(self, request: cart_pb2.AddItemRequest, context: ServicerContext) -> empty_pb2.Empty:
        """Add a product, at most once per `idempotency-key`. `anonymous-cart` metadata makes a new cart anonymous."""
        require_present(request.HasField("item"), "item")
        item, metadata = request.item, metadata_of(context)
        key, anonymous = metadata.get("idempotency-key"), "anonymous-cart" in metadata
        addition = Addition(request.user_id, item.product_id, item.quantity, key, anonymous)
        if await self._carts.add(addition):
            self._items_added.add(addition.quantity)
        return empty_pb2.Empty()

    async def GetCart(self, request: cart_pb2.GetCartRequest, context: ServicerContext) -> cart_pb2.Cart:
        """Return the cart, with its `etag` and `cart-generation` in trailing metadata. An empty cart's etag is new.

        If an order emptied the cart, `cart-generation` is the ordered cart's, and the metadata also contains
        `ordered-etag`: the etag or generation that checkout sent when it removed the ordered items.
        """
        cart = await self._carts.read(check_user_id(request.user_id))
        etag, ordered_etag = (cart.etag or new_etag(), "") if cart.quantities else (new_etag(), cart.etag)
        known = {"etag": etag, "cart-generation": generation_of(cart.etag), "ordered-etag": ordered_etag}
        context.set_trailing_metadata(tuple((name, value) for name, value in known.items() if value))
        return cart_pb2.Cart(user_id=request.user_id, items=map(item_to_wire, cart.lines))

    async def EmptyCart(self, request: cart_pb2.EmptyCartRequest, context: ServicerContext) -> empty_pb2.Empty:
        """Remove all lines, unless `if-match` metadata is present and differs from the cart's current etag."""
        await self._carts.empty(check_user_id(request.user_id), metadata_of(context).get("if-match"))
        return empty_pb2.Empty()

    async def SetQuantity(
        self, request: cart_lines_pb2.SetQuantityRequest, context: ServicerContext
    ) -> cart_lines_pb2.SetQuantityResponse:
        require_present(request.HasField("item"), "item")
        await self._carts.set_quantity(NewQuantity(request.user_id, request.item.product_id, request.item.quantity))
        return cart_lines_pb2.SetQuantityResponse()

    async def RemoveOrdered(
        self, request: pb2.RemoveOrderedRequest, context: ServicerContext
    ) -> pb2.RemoveOrderedResponse:
        await self._carts.remove_ordered(_purchase_from_wire(request))
        return pb2.RemoveOrderedResponse()

    async def RemoveAllOrdered(
        self, request: pb2.RemoveAllOrderedRequest, context: ServicerContext
    ) -> pb2.RemoveAllOrderedResponse:
        limit_count(request.removals, "removals", max_count=_MAX_REMOVALS)
        reasons = await asyncio.gather(*map(self._refusal, request.removals))
        refused = [pb2.RefusedRemoval(index=index, reason=reason) for index, reason in enumerate(reasons) if reason]
        return pb2.RemoveAllOrderedResponse(refused=refused)

    async def _refusal(self, request: pb2.RemoveOrderedRequest) -> str | None:
        """Remove one order's items from the cart. If the removal is permanently refused, return the error reason."""
        try:
            await self._carts.remove_ordered(_purchase_from_wire(request))
        except REFUSALS as error:
            return error.reason
        return None


def _purchase_from_wire(request: pb2.RemoveOrderedRequest) -> Purchase:
    return Purchase(request.user_id, request.etag, items_from_wire(request.items))
