"""The servers that answer instead of a peer: what they refuse, and what they record of it."""

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
from shop_lab.world.peer_stubs import PeerStubs, Stub, serve_peer_stubs


@pytest.fixture
async def stubs() -> AsyncIterator[PeerStubs]:
    async with serve_peer_stubs() as served:
        yield served


@asynccontextmanager
async def connect(stub: Stub, service: str) -> AsyncIterator[grpc.aio.Channel]:
    opened = channel(stub.address, service, timeout_seconds=30)
    try:
        yield opened
    finally:
        await opened.close()


async def test_a_refusing_ledger_releases_no_charge_and_records_the_order(stubs: PeerStubs) -> None:
    stub = stubs.refusing["payment-internal"]
    async with connect(stub, "shop.internal.PaymentLedger") as opened:
        with pytest.raises(FailedPrecondition):
            await PaymentLedgerStub(opened).Void(VoidRequest(charge_key="order-id:2"))
        with pytest.raises(Unavailable):
            await PaymentLedgerStub(opened).ResolveOrFence(ResolveOrFenceRequest(charge_key="order-id:2"))
    assert stub.refused == {"order-id"}


async def test_a_refusing_email_accepts_no_confirmation(stubs: PeerStubs) -> None:
    stub = stubs.refusing["email-internal"]
    confirmation = SendOrderConfirmationRequest(order=OrderResult(order_id="order-id"))
    async with connect(stub, "shop.internal.Confirmations") as opened:
        request = AcceptConfirmationsRequest(confirmations=[confirmation])
        response = await ConfirmationsStub(opened).AcceptConfirmations(request)
    assert [refused.index for refused in response.refused] == [0]
    assert stub.refused == {"order-id"}


async def test_a_refusing_cart_removes_nothing(stubs: PeerStubs) -> None:
    stub = stubs.refusing["cart-internal"]
    async with connect(stub, "shop.internal.OrderedCart") as opened:
        request = RemoveAllOrderedRequest(removals=[RemoveOrderedRequest(order_id="order-id")])
        response = await OrderedCartStub(opened).RemoveAllOrdered(request)
    assert [refused.index for refused in response.refused] == [0]
    assert stub.refused == {"order-id"}


async def test_a_doubtful_shipping_ships_every_second_order_and_confirms_none() -> None:
    shipping = FakeShipping()
    async with (
        serve((add_ShippingServiceServicer_to_server, shipping)) as address,
        serve_peer_stubs(address) as stubs,
        connect(stubs.doubtful_shipping, "shop.ShippingService") as opened,
    ):
        for street in ("first", "second"):
            request = ShipOrderRequest(address=Address(street_address=street, city="Berlin"))
            for expected in (Unavailable, FailedPrecondition):
                with pytest.raises(expected):
                    await ShippingServiceStub(opened).ShipOrder(request, metadata=(("idempotency-key", street),))
    assert list(shipping.shipments) == ["first"]
    assert stubs.doubtful_shipping.refused == {"first", "second"}
