"""An idempotency key is used again after checkout and shipping have deleted its order, and payment has not."""

import grpc
import pytest

from shop.cart_pb2 import EmptyCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_kit.failing import failure_of
from shop_kit.running_shop import RunningShop, order_request


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
    await shop.wait_until_done(order_id)
    for table in ("order_events", "outbox", "orders"):
        shop.execute("checkout", f"DELETE FROM {table} WHERE order_id = ?", order_id)  # noqa: S608 - constants
    shop.execute("shipping", "DELETE FROM shipments WHERE shipment_key = ?", order_id)
    shop.execute("shipping", "UPDATE retention SET deleted_until = strftime('%s', 'now', '-365 days') + 0.0")
    years_ago = "UPDATE charges SET recorded_at = datetime('now', '-800 days') WHERE charge_key = ?"
    shop.execute("payment", years_ago, f"{order_id}:1")


@pytest.mark.parametrize("lines", [3, 2])
async def test_a_delivered_order_is_neither_shipped_again_nor_refunded(shop: RunningShop, lines: int) -> None:
    request, key = order_request(), f"key-{lines}"
    order_id = await place(shop, request, key, 3)
    await forget(shop, order_id)
    assert await place(shop, request, key, lines) == "ORDER_NEEDS_REVIEW"
    assert [charge.state for charge in shop.charges(order_id)] == ["CHARGED"]
    assert shop.execute("shipping", "SELECT * FROM shipments WHERE shipment_key LIKE ?", f"{order_id}%") == []
