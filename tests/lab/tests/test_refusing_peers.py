"""The peers that answer instead of the real ones: what they refuse, and what they record of it.

`tests/lab/tests/faults/test_prove.py` needs refunds and reviews, so it fails without the other ones.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from chassis.errors import FailedPrecondition
from chassis.rpc.client import channel
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.order_pb2 import OrderResult
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop_internal.confirmations_pb2 import AcceptConfirmationsRequest
from shop_internal.confirmations_pb2_grpc import ConfirmationsStub
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedRequest, RemoveOrderedRequest
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_lab.world.refusing_peers import serve_refusing_peers


def accept_confirmation(opened: grpc.aio.Channel) -> Awaitable[Any]:
    confirmation = SendOrderConfirmationRequest(order=OrderResult(order_id="order-id"))
    return ConfirmationsStub(opened).AcceptConfirmations(AcceptConfirmationsRequest(confirmations=[confirmation]))


def remove_ordered(opened: grpc.aio.Channel) -> Awaitable[Any]:
    request = RemoveAllOrderedRequest(removals=[RemoveOrderedRequest(order_id="order-id")])
    return OrderedCartStub(opened).RemoveAllOrdered(request)


@pytest.mark.parametrize(
    ("port", "notify"), [("email-internal", accept_confirmation), ("cart-internal", remove_ordered)]
)
async def test_a_refusing_peer_accepts_no_notification_and_records_the_order(
    port: str, notify: Callable[[grpc.aio.Channel], Awaitable[Any]]
) -> None:
    async with serve_refusing_peers() as peers, grpc.aio.insecure_channel(peers.address) as opened:
        response = await notify(opened)
        assert [refused.index for refused in response.refused] == [0]
        assert peers.refusing[port].refused == {"order-id"}


async def test_a_refusing_payment_charges_no_card() -> None:
    async with serve_refusing_peers() as peers:
        opened = channel(peers.address, "shop.PaymentService", timeout_seconds=30)
        with pytest.raises(FailedPrecondition):
            await PaymentServiceStub(opened).Charge(ChargeRequest())
        await opened.close()
