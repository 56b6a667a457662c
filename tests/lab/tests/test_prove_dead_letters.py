"""Dead letters are requeued during a run."""

from typing_extensions import override

from chassis.rpc.serving import ServicerContext
from shop_internal import orders_pb2
from shop_internal.orders_pb2_grpc import (
    OrderJournalServicer,
    OrderJournalStub,
    add_OrderJournalServicer_to_server,
)
from shop_kit.serving import connect
from shop_kit.waiting import wait_until
from shop_lab.world.dead_letters import requeued_dead_letters


class TwoShippedOrders(OrderJournalServicer):
    """A journal in which one order has a dead letter, and the other one is only waiting."""

    def __init__(self) -> None:
        self.requeued: list[str] = []

    @override
    async def ListOrders(
        self,
        request: orders_pb2.ListOrdersRequest,
        context: ServicerContext,
    ) -> orders_pb2.ListOrdersResponse:
        assert list(request.states) == [orders_pb2.ORDER_STATE_SHIPPED]
        dead = orders_pb2.Order(order_id="dead", dead_letters=["email"])
        return orders_pb2.ListOrdersResponse(orders=[dead, orders_pb2.Order(order_id="waiting", outbox=["email"])])

    @override
    async def RequeueNotifications(
        self,
        request: orders_pb2.RequeueNotificationsRequest,
        context: ServicerContext,
    ) -> orders_pb2.RequeueNotificationsResponse:
        self.requeued.append(request.order_id)
        return orders_pb2.RequeueNotificationsResponse()


async def test_orders_with_dead_letters_are_requeued_and_no_others() -> None:
    journal = TwoShippedOrders()  # type: ignore[abstract] # it has the methods that an operator calls
    async with (
        connect((add_OrderJournalServicer_to_server, journal)) as opened,
        requeued_dead_letters(OrderJournalStub(opened)),
    ):
        await wait_until(lambda: journal.requeued)
    assert set(journal.requeued) == {"dead"}
