"""Peers that answer instead of a service for a while: one without any method, and others that refuse permanently."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import grpc
from typing_extensions import override

from chassis.errors import FailedPrecondition, Unavailable
from chassis.rpc.calls import ServicerContext, metadata_of
from shop import shipping_pb2, shipping_pb2_grpc
from shop_cli.local.ports import HOST
from shop_kit.fake_peers import FakePeers
from shop_kit.fake_peers.effects import FakeShipping
from shop_kit.fake_peers.peer import Fault
from shop_kit.serving import serve

OPERATORS = "operators"
"""Those who settle orders refuse them as peers do."""

CARD_REFUSED, NO_DELIVERY = "CARD_REFUSED", "NO_DELIVERY"
DOUBTFUL_SHIPPING = "doubtful shipping"
_SHIP_SECONDS = 2.0


class DoubtfulShipping(FakeShipping):
    """Passes every second order on to the shipping service at an address, but confirms none.

    Attributes:
        refused: the streets of these orders.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self._address = address

    @override
    async def ShipOrder(
        self, request: shipping_pb2.ShipOrderRequest, context: ServicerContext
    ) -> shipping_pb2.ShipOrderResponse:
        self.refused.add(request.address.street_address)
        if len(self.refused) % 2:
            metadata = (("idempotency-key", metadata_of(context).get("idempotency-key") or ""),)
            async with grpc.aio.insecure_channel(self._address) as opened:
                shipping = shipping_pb2_grpc.ShippingServiceStub(opened)
                with suppress(grpc.aio.AioRpcError):
                    await shipping.ShipOrder(request, timeout=_SHIP_SECONDS, metadata=metadata)
        raise Unavailable("not available")


@dataclass(frozen=True)
class RefusingPeers:
    """The addresses of peers that answer instead of the real ones, and what they have refused.

    Attributes:
        unimplemented: a server without any method.
        refusing: a server that refuses to charge, to void, to ship, to confirm and to remove ordered items.
        doubtful_shipping: a shipping service whose answers leave open whether an order is shipped.
        refused: the orders, by the name of the port for which a peer answers: ids, or streets at the doubtful shipping.
    """

    unimplemented: str = ""
    refusing: str = ""
    doubtful_shipping: str = ""
    refused: Mapping[str, set[str]] = field(default_factory=dict)


@asynccontextmanager
async def serve_refusing_peers(shipping_address: str) -> AsyncIterator[RefusingPeers]:
    """Run the servers on free ports of loopback while in the context. Some requests are passed on to shipping."""
    peers, doubtful = FakePeers(), DoubtfulShipping(shipping_address)
    refused = {DOUBTFUL_SHIPPING: doubtful.refused, OPERATORS: set[str]()} | _refuse_permanently(peers)
    # Without health checks, too: clients take such a server for healthy.
    nothing = grpc.aio.server()
    port = nothing.add_insecure_port(f"{HOST}:0")
    await nothing.start()
    try:
        async with peers.serving() as refusing, serve(doubtful) as doubtful_shipping:
            yield RefusingPeers(f"{HOST}:{port}", refusing, doubtful_shipping, refused)
    finally:
        await nothing.stop(0)


def _refuse_permanently(peers: FakePeers) -> dict[str, set[str]]:
    """Make peers refuse every order; return the refused ones, which grow, by the port for which a peer answers."""
    peers.payment.faults["Charge"] = Fault(FailedPrecondition("this card is not accepted", reason=CARD_REFUSED))
    peers.shipping.faults["ShipOrder"] = Fault(FailedPrecondition("no delivery to this address", reason=NO_DELIVERY))
    peers.ledger.faults["ResolveOrFence"] = Fault(Unavailable("not available"))
    recorded = {
        "payment-internal": (peers.ledger, "Void", "TOO_LATE_TO_VOID"),
        "email-internal": (peers.email, "SendOrderConfirmation", "ADDRESS_BLOCKED"),
        "cart-internal": (peers.ordered_cart, "RemoveOrdered", "CART_LOCKED"),
    }
    for peer, method, reason in recorded.values():
        peer.faults[method] = Fault(FailedPrecondition("is refused", reason=reason))
    return {port: peer.orders[method] for port, (peer, method, _) in recorded.items()}
