"""Orders are read in the order of their creation, page by page."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from chassis.values import paging
from chassis.values.paging import Position
from checkout_service.ports import Entry, Journal
from shop_internal import orders_pb2
from shop_lab.world.fake_peers import FakePeers

Checkout = Any


async def test_orders_are_read_from_a_position_on(journal: Journal, new_order: Callable[..., Entry]) -> None:
    for number in range(3):
        await journal.insert(new_order(f"scope-{number}", user_id=f"user-{number}"))
    orders = await journal.scan(Position(0), 10)
    assert sorted(orders, key=lambda order: (order.created_at, order.order_id)) == orders
    assert len(orders) == 3
    paged = [await journal.scan(start, 1) for start in (Position(0), *(order.position for order in orders))]
    assert [page[0].order_id for page in paged[:3]] == [order.order_id for order in orders]
    assert paged[3] == []


async def test_orders_are_listed_page_by_page(
    checkout: Checkout, peers: FakePeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    users = ["ann", "bob", "cid"]
    for user in users:
        peers.cart.fill(user, mug=1)
        await checkout.place(user_id=user)
    token = ""
    pages: list[Sequence[orders_pb2.Order]] = []
    while not pages or token:
        page = await checkout.journal.ScanOrders(orders_pb2.ScanOrdersRequest(page_token=token))
        token = page.next_page_token
        pages.append(page.orders)
    assert [[order.user_id for order in page] for page in pages] == [["ann", "bob"], ["cid"], []]


async def test_a_scan_from_an_impossible_time_is_refused(checkout: Checkout) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await checkout.journal.ScanOrders(orders_pb2.ScanOrdersRequest(since=Timestamp(seconds=-1)))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
