"""Peers that answer instead of a service for a while: one without any method, and one that refuses every order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from chassis.errors import FailedPrecondition
from shop_cli.local.ports import HOST
from shop_kit.fake_peers import FakePeers
from shop_kit.fake_peers.peer import Fault

CARD_REFUSED, NO_DELIVERY = "CARD_REFUSED", "NO_DELIVERY"


@dataclass(frozen=True)
class RefusingPeers:
    """The addresses of a server without any method, and of one that refuses to charge and to ship."""

    unimplemented: str = ""
    refusing: str = ""


@asynccontextmanager
async def serve_refusing_peers() -> AsyncIterator[RefusingPeers]:
    """Run the servers on free ports of loopback while in the context."""
    peers = FakePeers()
    peers.payment.faults["Charge"] = Fault(FailedPrecondition("this card is not accepted", reason=CARD_REFUSED))
    peers.shipping.faults["ShipOrder"] = Fault(FailedPrecondition("no delivery to this address", reason=NO_DELIVERY))
    # Without health checks, too: clients take such a server for healthy.
    nothing = grpc.aio.server()
    port = nothing.add_insecure_port(f"{HOST}:0")
    await nothing.start()
    try:
        async with peers.serving() as address:
            yield RefusingPeers(f"{HOST}:{port}", address)
    finally:
        await nothing.stop(0)
