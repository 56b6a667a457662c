"""The peers that answer instead of the real ones: what they refuse, and what they record of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from chassis.errors import FailedPrecondition, Unavailable
from chassis.rpc.client import channel
from shop.address_pb2 import Address
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.order_pb2 import OrderResult
from shop.shipping_pb2 import ShipOrderRequest
from shop.shipping_pb2_grpc import ShippingServiceStub, add_ShippingServiceServicer_to_server
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedRequest, RemoveOrderedRequest
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_internal.payment_ledger_pb2 import ResolveOrFenceRequest, VoidRequest
from shop_internal.payment_ledger_pb2_grpc import PaymentLedgerStub
from shop_kit.serving import serve
from shop_lab.world.fake_peers.effects import FakeShipping
from shop_lab.world.fake_peers.refusing import RefusingPeers, serve_refusing_peers


@pytest.fixture
async def peers() -> AsyncIterator[RefusingPeers]:
    async with serve_refusing_peers() as served:
        yield served


@asynccontextmanager
async def connect(address: str, service: str) -> AsyncIterator[grpc.aio.Channel]:
    opened = channel(address, service, timeout_seconds=30)
    try:
        yield opened
    finally:
        await opened.close()


async def test_a_refusing_ledger_releases_no_charge_and_records_the_order(peers: RefusingPeers) -> None:
    refusing = peers.refusing["payment-internal"]
    async with connect(peers.address, "shop.internal.PaymentLedger") as opened:
        with pytest.raises(FailedPrecondition):
            await PaymentLedgerStub(opened).Void(VoidRequest(charge_key="order-id:2"))
        with pytest.raises(Unavailable):
            await PaymentLedgerStub(opened).ResolveOrFence(ResolveOrFenceRequest(charge_key="order-id:2"))
    assert refusing.refused == {"order-id"}


async def test_a_refusing_email_accepts_no_confirmation(peers: RefusingPeers) -> None:
    refusing = peers.refusing["email-internal"]
    confirmation = SendOrderConfirmationRequest(order=OrderResult(order_id="order-id"))
    async with connect(peers.address, "shop.internal.Confirmations") as opened:
        request = AcceptConfirmationsRequest(confirmations=[confirmation])
        response = await ConfirmationsStub(opened).AcceptConfirmations(request)
    assert [refused.index for refused in response.refused] == [0]
    assert refusing.refused == {"order-id"}


async def test_a_refusing_cart_removes_nothing(peers: RefusingPeers) -> None:
    refusing = peers.refusing["cart-internal"]
    async with connect(peers.address, "shop.internal.OrderedCart") as opened:
        request = RemoveAllOrderedRequest(removals=[RemoveOrderedRequest(order_id="order-id")])
        response = await OrderedCartStub(opened).RemoveAllOrdered(request)
    assert [refused.index for refused in response.refused] == [0]
    assert refusing.refused == {"order-id"}


async def test_a_doubtful_shipping_ships_every_second_order_and_confirms_none() -> None:
    shipping = FakeShipping()
    async with (
        serve((add_ShippingServiceServicer_to_server, shipping)) as address,
        serve_refusing_peers(address) as peers,
        connect(peers.doubtful_address, "shop.ShippingService") as opened,
    ):
        for street in ("first", "second"):
            request = ShipOrderRequest(address=Address(street_address=street, city="Berlin"))
            for expected in (Unavailable, FailedPrecondition):
                with pytest.raises(expected):
                    await ShippingServiceStub(opened).ShipOrder(request, metadata=(("idempotency-key", street),))
    assert list(shipping.shipments) == ["first"]
    assert peers.doubtful_shipping.refused == {"first", "second"}
