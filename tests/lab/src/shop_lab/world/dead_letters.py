"""Requeues dead letters during a run, as an operator does once the peer accepts them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from chassis import errors
from shop_internal.orders_pb2 import ListOrdersRequest, OrderState, RequeueNotificationsRequest
from shop_internal.orders_pb2_grpc import OrderJournalStub

_TURN_SECONDS = 1.0
_MAX_LISTED = 1_000


@asynccontextmanager
async def requeued_dead_letters(journal: OrderJournalStub) -> AsyncIterator[None]:
    """Requeue all dead letters once a second while in the context."""
    requeuing = asyncio.create_task(_requeue_periodically(journal), name="requeue dead letters")
    try:
        yield
    finally:
        requeuing.cancel()
        await asyncio.wait([requeuing])


async def _requeue_periodically(journal: OrderJournalStub) -> None:
    while True:
        with suppress(errors.DomainError):
            await _requeue(journal)
        await asyncio.sleep(_TURN_SECONDS)


async def _requeue(journal: OrderJournalStub) -> None:
    shipped = [OrderState.ORDER_STATE_SHIPPED]
    for order in (await journal.ListOrders(ListOrdersRequest(states=shipped, limit=_MAX_LISTED))).orders:
        if order.dead_letters:
            await journal.RequeueNotifications(RequeueNotificationsRequest(order_id=order.order_id))
