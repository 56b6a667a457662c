"""The clients of what follows a placed order: its confirmation, and the removal of its items from the cart."""

from collections.abc import Awaitable, Iterable, Sequence

from typing_extensions import override

from chassis.errors import DomainError, FailedPrecondition, Unimplemented
from chassis.telemetry.instruments import Telemetry
from checkout_service.domain import PlacedOrder
from checkout_service.peers.batches import Batches
from checkout_service.peers.internal_service import InternalService
from checkout_service.peers.wire import lines_to_wire, placed_order_to_wire
from checkout_service.ports import CartClearer, Mailer
from shop import cart_pb2, cart_pb2_grpc, email_pb2, email_pb2_grpc
from shop_internal import confirmations_pb2, confirmations_pb2_grpc, ordered_cart_pb2, ordered_cart_pb2_grpc

EMAIL_SECONDS = 0.05
"""How long a confirmation waits for those of other orders. After longer, many at once delay orders in progress."""

CART_SECONDS = 0.02
"""How long the removal from a cart waits for the call in progress, which other removals may follow together."""


class EmailClient(Mailer):
    """Mails the confirmations of many orders in one internal call.

    An email service without it, such as a foreign one, gets a call of the contract for each. The e-mail's id derives
    from the order's, so a repeated one is the same e-mail.
    """

    def __init__(
        self,
        emails: email_pb2_grpc.EmailServiceStub,
        confirmations: confirmations_pb2_grpc.ConfirmationsStub,
        telemetry: Telemetry,
    ) -> None:
        self._emails = emails
        self._confirmations = confirmations
        self._batches = Batches("confirmations", self._accept, self._send, telemetry, delay_seconds=EMAIL_SECONDS)

    @override
    def confirm(self, placed: PlacedOrder) -> Awaitable[None]:
        confirmation = email_pb2.SendOrderConfirmationRequest(
            email=placed.order.email, order=placed_order_to_wire(placed)
        )
        return self._batches.send(confirmation)

    async def _accept(self, batch: Sequence[email_pb2.SendOrderConfirmationRequest]) -> Sequence[DomainError | None]:
        request = confirmations_pb2.AcceptConfirmationsRequest(confirmations=batch)
        response = await self._confirmations.AcceptConfirmations(request)
        return _errors(len(batch), ((refused.index, refused.reason) for refused in response.refused))

    async def _send(self, confirmation: email_pb2.SendOrderConfirmationRequest) -> None:
        await self._emails.SendOrderConfirmation(confirmation)


class CartClient(CartClearer):
    """Removes the ordered items of many carts in one internal call.

    A cart service without the internal service, such as a foreign one, gets EmptyCart, which leaves a cart alone that
    has changed since the order; without etags it empties the cart in any case.
    """

    def __init__(
        self,
        carts: cart_pb2_grpc.CartServiceStub,
        ordered_carts: ordered_cart_pb2_grpc.OrderedCartStub,
        telemetry: Telemetry,
    ) -> None:
        self._carts = carts
        self._ordered_carts = ordered_carts
        self._internal = InternalService("shop.internal.OrderedCart")
        self._batches = Batches(
            "removals from carts", self._remove_all, self._remove, telemetry, delay_seconds=CART_SECONDS, eager=True
        )

    @override
    def remove_ordered(self, placed: PlacedOrder) -> Awaitable[None]:
        return self._batches.send(placed)

    async def _remove_all(self, batch: Sequence[PlacedOrder]) -> Sequence[DomainError | None]:
        request = ordered_cart_pb2.RemoveAllOrderedRequest(removals=map(_removal_to_wire, batch))
        response = await self._ordered_carts.RemoveAllOrdered(request)
        return _errors(len(batch), ((refused.index, refused.reason) for refused in response.refused))

    async def _remove(self, placed: PlacedOrder) -> None:
        order = placed.order
        try:
            await self._internal.call(self._ordered_carts.RemoveOrdered, _removal_to_wire(placed))
        except Unimplemented:
            await self._empty(order.user_id, order.cart_etag)

    async def _empty(self, user_id: str, etag: str) -> None:
        metadata = (("if-match", etag),) if etag else ()
        await self._carts.EmptyCart(cart_pb2.EmptyCartRequest(user_id=user_id), metadata=metadata)


def _removal_to_wire(placed: PlacedOrder) -> ordered_cart_pb2.RemoveOrderedRequest:
    order = placed.order
    return ordered_cart_pb2.RemoveOrderedRequest(
        user_id=order.user_id, etag=order.cart_etag, order_id=order.order_id, items=lines_to_wire(order.lines)
    )


def _errors(count: int, refused: Iterable[tuple[int, str]]) -> list[DomainError | None]:
    """Return an error for each refused item of a call, None for the others."""
    errors: list[DomainError | None] = [None] * count
    for index, reason in refused:
        errors[index] = FailedPrecondition("refused", reason=reason)
    return errors
