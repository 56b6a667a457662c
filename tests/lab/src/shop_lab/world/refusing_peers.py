"""Peers that answer instead of a service for a while: one without any method, and others that refuse permanently."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc
from typing_extensions import override

from chassis.errors import FailedPrecondition, Unavailable
from chassis.rpc.calls import ServicerContext, metadata_value
from shop import shipping_pb2, shipping_pb2_grpc
from shop_cli.local.ports import HOST
from shop_kit.fake_peers import FakePeers
from shop_kit.fake_peers.effects import FakeShipping
from shop_kit.fake_peers.peer import FakePeer, Fault
from shop_kit.serving import serve

CARD_REFUSED, NO_DELIVERY = "CARD_REFUSED", "NO_DELIVERY"
_SHIP_SECONDS = 2.0


class DoubtfulShipping(FakeShipping):
    """Passes every second order on to the shipping service at an address, but confirms none.

    The first request fails, and a repeated one is refused.
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
            self.record_refusal(street)
            raise _no_delivery()
        self._tried.add(street)
        if len(self._tried) % 2:
            metadata = (("idempotency-key", metadata_value(context, "idempotency-key") or ""),)
            async with grpc.aio.insecure_channel(self._address) as opened:
                shipping = shipping_pb2_grpc.ShippingServiceStub(opened)
                with suppress(grpc.aio.AioRpcError):
                    await shipping.ShipOrder(request, timeout=_SHIP_SECONDS, metadata=metadata)
        raise Unavailable("not available")


def _no_delivery() -> FailedPrecondition:
    return FailedPrecondition("no delivery to this address", reason=NO_DELIVERY)


@dataclass(frozen=True)
class RefusingPeers:
    """The addresses of peers that answer instead of the real ones, and what they have refused.

    Attributes:
        unimplemented: a server without any method.
        address: a server that refuses to charge, to void, to ship, to confirm and to remove ordered items.
        refusing: the peers at `address` by the name of the port for which they answer.
        doubtful_address: a shipping service whose answers leave open whether an order is shipped.
    """

    unimplemented: str = ""
    address: str = ""
    refusing: Mapping[str, FakePeer] = field(default_factory=dict)
    doubtful_address: str = ""
    doubtful_shipping: FakePeer = field(default_factory=FakePeer)


@asynccontextmanager
async def serve_refusing_peers(shipping_address: str) -> AsyncIterator[RefusingPeers]:
    """Run the servers on free ports of loopback while in the context. Some requests are passed on to shipping."""
    peers, doubtful = FakePeers(), DoubtfulShipping(shipping_address)
    refused = {
        "payment": (peers.payment, "Charge", FailedPrecondition("this card is not accepted", reason=CARD_REFUSED)),
        "payment-internal": (peers.ledger, "Void", FailedPrecondition("too late to void", reason="TOO_LATE_TO_VOID")),
        "shipping": (peers.shipping, "ShipOrder", _no_delivery()),
        "email-internal": (
            peers.email, "SendOrderConfirmation", FailedPrecondition("is blocked", reason="ADDRESS_BLOCKED"),
        ),
        "cart-internal": (peers.ordered_cart, "RemoveOrdered", FailedPrecondition("is locked", reason="CART_LOCKED")),
    }  # fmt: skip
    for peer, method, error in refused.values():
        peer.faults[method] = Fault(error)
    peers.ledger.faults["ResolveOrFence"] = Fault(Unavailable("not available"))
    async with AsyncExitStack() as stack:
        yield RefusingPeers(
            await _serve_nothing(stack),
            await stack.enter_async_context(peers.serving()),
            {port: peer for port, (peer, _, _) in refused.items()},
            await stack.enter_async_context(serve((shipping_pb2_grpc.add_ShippingServiceServicer_to_server, doubtful))),
            doubtful,
        )


async def _serve_nothing(stack: AsyncExitStack) -> str:
    """Start a server without any method, not even health checks: clients take such a server for healthy."""
    server = grpc.aio.server()
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    stack.push_async_callback(server.stop, 0)
    return f"{HOST}:{port}"
