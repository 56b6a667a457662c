"""The clients of what follows a placed order: its confirmation, and the removal of its items from the cart."""

import asyncio
from collections.abc import Sequence

import structlog
from typing_extensions import override

from chassis.errors import REFUSALS, DomainError, FailedPrecondition, Internal, Unimplemented
from checkout_service.domain import PlacedOrder
from checkout_service.peers.batches import Batches
from checkout_service.peers.internal_service import InternalService
from checkout_service.peers.wire import lines_to_wire, placed_order_to_wire
from checkout_service.ports import CartClearer, Mailer
from shop import cart_pb2, cart_pb2_grpc, email_pb2, email_pb2_grpc
from shop_internal import confirmations_pb2, confirmations_pb2_grpc, ordered_cart_pb2, ordered_cart_pb2_grpc

BATCH_SECONDS = 0.05
"""How long a confirmation waits for those of other orders."""

# A confirmation of 1,000 lines takes about 150 kB, and a call at most 4 MiB.
_BATCH_ITEMS = 20
_ABSENT_SECONDS = 60.0
_PERHAPS_FOR_ONE: tuple[type[DomainError], ...] = (Internal, *REFUSALS)
"""Errors of a batch that may have been caused by one confirmation in it."""


log = structlog.get_logger()


class EmailClient(Mailer):
    """Mails the confirmations of many orders in one internal call.

    An email service without it, such as a foreign one, gets a call of the contract for each. The e-mail's id derives
    from the order's, so a repeated one is the same e-mail.
    """

    def __init__(
        self, emails: email_pb2_grpc.EmailServiceStub, confirmations: confirmations_pb2_grpc.ConfirmationsStub
    ) -> None:
        self._emails = emails
        self._confirmations = confirmations
        self._batches = Batches(self._accept, delay_seconds=BATCH_SECONDS, max_items=_BATCH_ITEMS)
        self._absent_until = 0.0

    @override
    async def confirm(self, placed: PlacedOrder) -> None:
        await self._batches.send(placed)

    async def _accept(self, batch: Sequence[PlacedOrder]) -> Sequence[DomainError | None]:
        requests = [_confirmation_to_wire(placed) for placed in batch]
        loop = asyncio.get_running_loop()
        if loop.time() >= self._absent_until:
            try:
                return await self._accept_together(requests)
            except Unimplemented:
                self._absent_until = loop.time() + _ABSENT_SECONDS
            except _PERHAPS_FOR_ONE as error:
                log.warning("confirmations are sent one by one", reason=error.reason)
        return await asyncio.gather(*map(self._accept_alone, requests))

    async def _accept_together(
        self, requests: Sequence[email_pb2.SendOrderConfirmationRequest]
    ) -> Sequence[DomainError | None]:
        request = confirmations_pb2.AcceptConfirmationsRequest(confirmations=requests)
        response = await self._confirmations.AcceptConfirmations(request)
        errors: list[DomainError | None] = [None] * len(requests)
        for refused in response.refused:
            errors[refused.index] = FailedPrecondition("the confirmation was refused", reason=refused.reason)
        return errors

    async def _accept_alone(self, request: email_pb2.SendOrderConfirmationRequest) -> DomainError | None:
        try:
            await self._emails.SendOrderConfirmation(request)
        except DomainError as error:
            return error
        return None


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


def _confirmation_to_wire(placed: PlacedOrder) -> email_pb2.SendOrderConfirmationRequest:
    return email_pb2.SendOrderConfirmationRequest(email=placed.order.email, order=placed_order_to_wire(placed))
