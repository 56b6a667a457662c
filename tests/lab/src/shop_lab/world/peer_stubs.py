"""Servers that answer instead of a service for a while: one without any method, and others that refuse for good."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
from typing_extensions import override

from chassis.errors import DomainError, FailedPrecondition, Unavailable
from chassis.rpc.calls import metadata_value
from chassis.rpc.serving import ServicerContext
from chassis.rpc.status import to_status
from shop import (
    money_pb2,
    payment_pb2,
    payment_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)
from shop_cli.local.ports import HOST
from shop_internal import (
    confirmations_pb2,
    confirmations_pb2_grpc,
    ordered_cart_pb2,
    ordered_cart_pb2_grpc,
    payment_ledger_pb2,
    payment_ledger_pb2_grpc,
)

_SHIP_SECONDS = 2.0
_UNAVAILABLE = to_status(Unavailable("not available"))


class NoDelivery(FailedPrecondition):
    """The address is not delivered to."""


class CardRefused(FailedPrecondition):
    """The card is not accepted."""


class TooLateToVoid(FailedPrecondition):
    """The charge can no longer be released."""


class CartLocked(FailedPrecondition):
    """The cart cannot be changed."""


class Stub:
    """A server that refuses for good.

    Attributes:
        refused: what it has refused, by the identity of the order.
        address: of the server; empty before it is started.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.address = ""
        self._changed = asyncio.Event()

    def record(self, *identities: str) -> None:
        """Record what is refused."""
        self.refused.update(identities)
        self._changed.set()

    async def refuse(self, identity: str, error: DomainError, context: ServicerContext) -> NoReturn:
        """Record a call, and abort it."""
        self.record(identity)
        await context.abort_with_status(to_status(error))

    async def wait_until_refused(self, count: int) -> None:
        """Wait until it has refused calls of so many orders."""
        while len(self.refused) < count:
            self._changed.clear()
            await self._changed.wait()


class RefusingShipping(Stub, shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes a cost, but refuses to ship. Identities are streets."""

    @override
    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        return shipping_pb2.GetQuoteResponse(cost_usd=money_pb2.Money(currency_code="USD", units=5))

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        await self.refuse_shipment(request, context)

    async def refuse_shipment(self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext) -> NoReturn:
        """Record a call, and abort it."""
        await self.refuse(request.address.street_address, NoDelivery("no delivery to this address"), context)


class DoubtfulShipping(RefusingShipping):
    """Ships every second order, but confirms none: the first request fails, and a repeated one is refused.

    Args:
        address: of the shipping that it passes requests on to.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self._tried: set[str] = set()

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        street = request.address.street_address
        if street in self._tried:
            await self.refuse_shipment(request, context)
        self._tried.add(street)
        if len(self._tried) % 2:
            with suppress(grpc.aio.AioRpcError):
                await self._pass_on(request, metadata_value(context, "idempotency-key") or "")
        await context.abort_with_status(_UNAVAILABLE)

    async def _pass_on(self, request: shipping_pb2.ShipOrderRequest, key: str) -> None:
        async with grpc.aio.insecure_channel(self._address) as opened:
            shipping = shipping_pb2_grpc.ShippingServiceStub(opened)
            await shipping.ShipOrder(request, timeout=_SHIP_SECONDS, metadata=(("idempotency-key", key),))


class RefusingPayment(Stub, payment_pb2_grpc.PaymentServiceServicer):
    """Refuses every card. Identities are keys."""

    @override
    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        key = metadata_value(context, "idempotency-key") or ""
        await self.refuse(key, CardRefused("this card is not accepted"), context)


class RefusingLedger(Stub, payment_ledger_pb2_grpc.PaymentLedgerServicer):
    """Releases no charge; nothing else is available. Identities are the orders' ids."""

    @override
    async def Void(
        self, request: payment_ledger_pb2.VoidRequest, context: ServicerContext
    ) -> payment_ledger_pb2.VoidResponse:
        order_id, _, _attempt = request.charge_key.partition(":")
        await self.refuse(order_id, TooLateToVoid("this charge can no longer be released"), context)

    @override
    async def ResolveOrFence(
        self, request: payment_ledger_pb2.ResolveOrFenceRequest, context: ServicerContext
    ) -> payment_ledger_pb2.ResolveOrFenceResponse:
        await context.abort_with_status(_UNAVAILABLE)

    @override
    async def ListCharges(
        self, request: payment_ledger_pb2.ListChargesRequest, context: ServicerContext
    ) -> payment_ledger_pb2.ListChargesResponse:
        await context.abort_with_status(_UNAVAILABLE)


class RefusingConfirmations(Stub, confirmations_pb2_grpc.ConfirmationsServicer):
    """Accepts no confirmation. Identities are the orders' ids."""

    @override
    async def AcceptConfirmations(
        self, request: confirmations_pb2.AcceptConfirmationsRequest, context: ServicerContext
    ) -> confirmations_pb2.AcceptConfirmationsResponse:
        self.record(*(confirmation.order.order_id for confirmation in request.confirmations))
        places = range(len(request.confirmations))
        refused = [confirmations_pb2.RefusedConfirmation(index=place, reason="ADDRESS_BLOCKED") for place in places]
        return confirmations_pb2.AcceptConfirmationsResponse(refused=refused)


class RefusingOrderedCart(Stub, ordered_cart_pb2_grpc.OrderedCartServicer):
    """Removes nothing from a cart. Identities are the orders' ids."""

    @override
    async def RemoveOrdered(
        self, request: ordered_cart_pb2.RemoveOrderedRequest, context: ServicerContext
    ) -> ordered_cart_pb2.RemoveOrderedResponse:
        await self.refuse(request.order_id, CartLocked("this cart cannot be changed"), context)

    @override
    async def RemoveAllOrdered(
        self, request: ordered_cart_pb2.RemoveAllOrderedRequest, context: ServicerContext
    ) -> ordered_cart_pb2.RemoveAllOrderedResponse:
        self.record(*(removal.order_id for removal in request.removals))
        places = range(len(request.removals))
        refused = [ordered_cart_pb2.RefusedRemoval(index=place, reason="CART_LOCKED") for place in places]
        return ordered_cart_pb2.RemoveAllOrderedResponse(refused=refused)


@dataclass(frozen=True)
class PeerStubs:
    """Servers that answer instead of a service.

    Attributes:
        unimplemented: the address of a server without any method.
        refusing: by the name of the port for which they answer.
        doubtful_shipping: a shipping whose answers leave open whether an order is shipped.
    """

    unimplemented: str = ""
    refusing: Mapping[str, Stub] = field(default_factory=dict)
    doubtful_shipping: Stub = field(default_factory=Stub)


@asynccontextmanager
async def serve_peer_stubs(shipping_address: str = "") -> AsyncIterator[PeerStubs]:
    """Run the servers on free ports of loopback while in the context. Some requests are passed on to shipping."""
    payment, ledger = RefusingPayment(), RefusingLedger()
    shipping, doubtful = RefusingShipping(), DoubtfulShipping(shipping_address)
    confirmations, cart = RefusingConfirmations(), RefusingOrderedCart()
    registrations: list[tuple[Callable[[Any, grpc.aio.Server], None], Stub]] = [
        (payment_pb2_grpc.add_PaymentServiceServicer_to_server, payment),
        (payment_ledger_pb2_grpc.add_PaymentLedgerServicer_to_server, ledger),
        (shipping_pb2_grpc.add_ShippingServiceServicer_to_server, shipping),
        (shipping_pb2_grpc.add_ShippingServiceServicer_to_server, doubtful),
        (confirmations_pb2_grpc.add_ConfirmationsServicer_to_server, confirmations),
        (ordered_cart_pb2_grpc.add_OrderedCartServicer_to_server, cart),
    ]
    async with AsyncExitStack() as stack:
        for register, stub in registrations:
            server = grpc.aio.server()
            register(stub, server)
            stub.address = await _start(server, stack)
        refusing: dict[str, Stub] = {"payment": payment, "payment-internal": ledger, "shipping": shipping}
        refusing |= {"email-internal": confirmations, "cart-internal": cart}
        yield PeerStubs(await _start(grpc.aio.server(), stack), refusing, doubtful)


async def _start(server: grpc.aio.Server, stack: AsyncExitStack) -> str:
    """Serve on a free port until the stack is closed. Return the address."""
    address = f"{HOST}:{server.add_insecure_port(f'{HOST}:0')}"
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return address
