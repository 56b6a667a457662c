"""An idempotency key is used again after checkout and shipping have deleted its order, and payment has not."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import grpc
import pytest
import pytest_asyncio

from shop.cart_pb2 import EmptyCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_kit.failing import failure_of
from shop_kit.running_shop import RunningShop, order_request, running_shop
from shop_kit.waiting import wait_until


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def own_shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningShop]:
    async with running_shop(tmp_path_factory.mktemp("shop")) as running:
        yield running


def execute(shop: RunningShop, database: str, statement: str, *parameters: object) -> list[Any]:
    with closing(sqlite3.connect(shop.folder / ".shop" / f"{database}.db", timeout=10)) as connection, connection:
        return connection.execute(statement, parameters).fetchall()


async def place(shop: RunningShop, request: PlaceOrderRequest, key: str, lines: int) -> str:
    """Fill the cart and order it under a key. Return the order's id, or the reason why it is refused."""
    await CartServiceStub(shop.channels["cart"]).EmptyCart(EmptyCartRequest(user_id=request.user_id))
    await shop.fill_cart(request.user_id, lines)
    call = CheckoutServiceStub(shop.channels["checkout"]).PlaceOrder(request, metadata=(("idempotency-key", key),))
    try:
        return (await call).order.order_id
    except grpc.aio.AioRpcError:
        return (await failure_of(call))[1]


async def forget(shop: RunningShop, order_id: str) -> None:
    """Let years pass, with the retention of the journal and of the manifest."""

    async def is_done() -> bool:
        return execute(shop, "checkout", "SELECT state FROM orders WHERE order_id = ?", order_id) == [("DONE",)]

    assert await wait_until(is_done)
    for table in ("order_events", "outbox", "orders"):
        execute(shop, "checkout", f"DELETE FROM {table} WHERE order_id = ?", order_id)  # noqa: S608 - constants
    execute(shop, "shipping", "DELETE FROM shipments WHERE shipment_key = ?", order_id)
    years_ago = "UPDATE charges SET recorded_at = datetime('now', '-800 days') WHERE charge_key = ?"
    execute(shop, "payment", years_ago, f"{order_id}:1")


@pytest.mark.parametrize("lines", [3, 2])
async def test_a_delivered_order_is_neither_shipped_again_nor_refunded(own_shop: RunningShop, lines: int) -> None:
    request, key = order_request(), f"key-{lines}"
    order_id = await place(own_shop, request, key, 3)
    await forget(own_shop, order_id)
    assert await place(own_shop, request, key, lines) == "ORDER_NEEDS_REVIEW"
    states = execute(own_shop, "payment", "SELECT state FROM charges WHERE charge_key LIKE ?", f"{order_id}:%")
    assert states == [("CHARGED",)]
    assert execute(own_shop, "shipping", "SELECT * FROM shipments WHERE shipment_key LIKE ?", f"{order_id}%") == []
