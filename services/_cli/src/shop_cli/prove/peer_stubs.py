"""Servers that answer instead of a service for a while: one without any method, and two that refuse everything."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from typing_extensions import override

from chassis.errors import FailedPrecondition
from chassis.serving import ServicerContext
from chassis.status import to_status
from shop import money_pb2, payment_pb2, payment_pb2_grpc, shipping_pb2, shipping_pb2_grpc
from shop_cli.local.ports import HOST


class NoDelivery(FailedPrecondition):
    """The address is not delivered to."""


class RefusingShipping(shipping_pb2_grpc.ShippingServiceServicer):
    """Quotes a cost, but refuses to ship."""

    @override
    async def GetQuote(
        self, request: shipping_pb2.GetQuoteRequest, context: ServicerContext
    ) -> shipping_pb2.GetQuoteResponse:
        return shipping_pb2.GetQuoteResponse(cost_usd=money_pb2.Money(currency_code="USD", units=5))

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        await context.abort_with_status(to_status(NoDelivery("no delivery to this address")))


class CardRefused(FailedPrecondition):
    """The card is not accepted."""


class RefusingPayment(payment_pb2_grpc.PaymentServiceServicer):
    """Refuses every card."""

    @override
    async def Charge(self, request: payment_pb2.ChargeRequest, context: ServicerContext) -> payment_pb2.ChargeResponse:
        await context.abort_with_status(to_status(CardRefused("this card is not accepted")))


@dataclass(frozen=True, slots=True)
class PeerStubs:
    """The addresses of the servers; `refusing` by the name of the service that they answer for."""

    unimplemented: str
    refusing: Mapping[str, str]


@asynccontextmanager
async def serve_peer_stubs() -> AsyncIterator[PeerStubs]:
    """Run the servers on free ports of loopback while in the context."""
    servers = unimplemented, payment, shipping = [grpc.aio.server() for _ in range(3)]
    payment_pb2_grpc.add_PaymentServiceServicer_to_server(RefusingPayment(), payment)
    shipping_pb2_grpc.add_ShippingServiceServicer_to_server(RefusingShipping(), shipping)
    addresses = {server: f"{HOST}:{server.add_insecure_port(f'{HOST}:0')}" for server in servers}
    for server in servers:
        await server.start()
    try:
        yield PeerStubs(addresses[unimplemented], {"payment": addresses[payment], "shipping": addresses[shipping]})
    finally:
        for server in servers:
            await server.stop(0)
