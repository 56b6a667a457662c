"""The clients of what follows a placed order: its confirmation, and the emptying of its cart."""

from typing_extensions import override

from checkout_service.domain import PlacedOrder
from checkout_service.peers.wire import placed_order_to_wire
from checkout_service.ports import CartClearer, Mailer
from shop import cart_pb2, cart_pb2_grpc, email_pb2, email_pb2_grpc


class EmailClient(Mailer):
    """Mails by the contract. The e-mail's id derives from the order's, so a repeated one is the same e-mail."""

    def __init__(self, stub: email_pb2_grpc.EmailServiceStub) -> None:
        self._stub = stub

    @override
    async def confirm(self, placed: PlacedOrder) -> None:
        request = email_pb2.SendOrderConfirmationRequest(email=placed.order.email, order=placed_order_to_wire(placed))
        await self._stub.SendOrderConfirmation(request)


class CartClient(CartClearer):
    """Empties carts by the contract."""

    def __init__(self, stub: cart_pb2_grpc.CartServiceStub) -> None:
        self._stub = stub

    @override
    async def remove_ordered(self, placed: PlacedOrder) -> None:
        order = placed.order
        metadata = (("if-match", order.cart_etag),) if order.cart_etag else ()
        await self._stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id=order.user_id), metadata=metadata)
