"""Operators, who requeue dead letters and settle orders during a run."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from chassis import errors
from shop_internal.orders_pb2 import ListOrdersRequest, OrderState, RequeueNotificationsRequest, SettleOrderRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub

_TURN_SECONDS = 1.0
_MAX_LISTED = 1_000


async def requeue_dead_letters(journal: OrderJournalStub) -> None:
    """Requeue all dead letters once a second, as an operator does once the peer accepts them, until cancelled."""
    shipped = ListOrdersRequest(states=[OrderState.ORDER_STATE_SHIPPED], limit=_MAX_LISTED)
    while True:
        with suppress(errors.DomainError):
            for order in (await journal.ListOrders(shipped)).orders:
                if order.dead_letters:
                    await journal.RequeueNotifications(RequeueNotificationsRequest(order_id=order.order_id))
        await asyncio.sleep(_TURN_SECONDS)


async def settle_twice(order_id: str, tracking_ids: Iterable[str], journals: Sequence[OrderJournalStub]) -> None:
    """Let two operators settle an order at once: one refunds it, the other one knows if shipping has sent it."""
    refunded = SettleOrderRequest(order_id=order_id, by="ann", refunded="the customer called")
    shipped = [SettleOrderRequest(order_id=order_id, by="bob", shipped=sent) for sent in tracking_ids]
    async with asyncio.TaskGroup() as operators:
        for journal, decision in zip(journals, (refunded, *shipped, refunded), strict=False):
            operators.create_task(_settle(journal, decision))


async def _settle(journal: OrderJournalStub, decision: SettleOrderRequest) -> None:
    with suppress(errors.DomainError):
        await journal.SettleOrder(decision)
