"""Servers that answer instead of a service for a while: one without any method, and a shipping that refuses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from typing_extensions import override

from chassis.errors import FailedPrecondition
from chassis.serving import ServicerContext
from chassis.status import to_status
from shop import money_pb2, shipping_pb2, shipping_pb2_grpc
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


@dataclass(frozen=True, slots=True)
class PeerStubs:
    """The addresses of the servers."""

    unimplemented: str
    refusing_shipping: str


@asynccontextmanager
async def serve_peer_stubs() -> AsyncIterator[PeerStubs]:
    """Run the servers on free ports of loopback while in the context."""
    unimplemented, refusing = grpc.aio.server(), grpc.aio.server()
    shipping_pb2_grpc.add_ShippingServiceServicer_to_server(RefusingShipping(), refusing)
    ports = [server.add_insecure_port(f"{HOST}:0") for server in (unimplemented, refusing)]
    await unimplemented.start()
    await refusing.start()
    try:
        yield PeerStubs(*(f"{HOST}:{port}" for port in ports))
    finally:
        await unimplemented.stop(0)
        await refusing.stop(0)
