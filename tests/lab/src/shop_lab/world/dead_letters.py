"""Requeues dead letters during a run, as an operator does once the peer accepts them."""

import asyncio
from contextlib import suppress

from chassis import errors
from shop_internal.orders_pb2 import ListOrdersRequest, OrderState, RequeueNotificationsRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub

_TURN_SECONDS = 1.0
_MAX_LISTED = 1_000


async def requeue_dead_letters(journal: OrderJournalStub) -> None:
    """Requeue all dead letters once a second, until cancelled."""
    shipped = ListOrdersRequest(states=[OrderState.ORDER_STATE_SHIPPED], limit=_MAX_LISTED)
    while True:
        with suppress(errors.DomainError):
            for order in (await journal.ListOrders(shipped)).orders:
                if order.dead_letters:
                    await journal.RequeueNotifications(RequeueNotificationsRequest(order_id=order.order_id))
        await asyncio.sleep(_TURN_SECONDS)
