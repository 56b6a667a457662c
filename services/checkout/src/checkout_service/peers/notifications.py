"""The clients of what follows a placed order: its confirmation, and the removal of its items from the cart."""

from typing_extensions import override

from chassis.errors import Unimplemented
from checkout_service.domain import PlacedOrder
from checkout_service.peers.internal_service import InternalService
from checkout_service.peers.wire import lines_to_wire, placed_order_to_wire
from checkout_service.ports import CartClearer, Mailer
from shop import cart_pb2, cart_pb2_grpc, email_pb2, email_pb2_grpc
from shop_internal import ordered_cart_pb2, ordered_cart_pb2_grpc


class EmailClient(Mailer):
    """Mails by the contract. The e-mail's id derives from the order's, so a repeated one is the same e-mail."""

    def __init__(self, stub: email_pb2_grpc.EmailServiceStub) -> None:
        self._stub = stub

    @override
    async def confirm(self, placed: PlacedOrder) -> None:
        request = email_pb2.SendOrderConfirmationRequest(email=placed.order.email, order=placed_order_to_wire(placed))
        await self._stub.SendOrderConfirmation(request)


class CartClient(CartClearer):
    """Removes ordered items by the internal service.

    A cart service without it, such as a foreign one, gets EmptyCart, which leaves a cart alone that has changed since
    the order; without etags it empties the cart in any case.
    """

    def __init__(
        self, carts: cart_pb2_grpc.CartServiceStub, ordered_carts: ordered_cart_pb2_grpc.OrderedCartStub
    ) -> None:
        self._carts = carts
        self._ordered_carts = ordered_carts
        self._internal = InternalService("shop.internal.OrderedCart")

    @override
    async def remove_ordered(self, placed: PlacedOrder) -> None:
        order = placed.order
        request = ordered_cart_pb2.RemoveOrderedRequest(
            user_id=order.user_id, etag=order.cart_etag, order_id=order.order_id, items=lines_to_wire(order.lines)
        )
        try:
            await self._internal.call(self._ordered_carts.RemoveOrdered, request)
        except Unimplemented:
            await self._empty(order.user_id, order.cart_etag)

    async def _empty(self, user_id: str, etag: str) -> None:
        metadata = (("if-match", etag),) if etag else ()
        await self._carts.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user_id), metadata=metadata)
