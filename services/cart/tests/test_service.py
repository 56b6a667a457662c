from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from typing_extensions import override

from cart_service.domain import Cart, CartStore, StoreUnavailable
from cart_service.service import CartLines, CartService, OrderedCart
from cart_service.store import MemoryCartStore
from chassis.rpc.status import from_rpc_error
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub, add_CartServiceServicer_to_server
from shop_internal.cart_lines_pb2 import SetQuantityRequest
from shop_internal.cart_lines_pb2_grpc import CartLinesStub, add_CartLinesServicer_to_server
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedRequest, RemoveOrderedRequest
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub, add_OrderedCartServicer_to_server
from shop_kit.failing import failure_of, rejected_fields
from shop_kit.serving import connect

TWO_PANS = cart_pb2.CartItem(product_id="pan", quantity=2)
ADA = cart_pb2.GetCartRequest(user_id="ada")


class UnavailableStore(MemoryCartStore):
    """A store that is down: it cannot be read."""

    @override
    async def read(self, user_id: str) -> Cart:
        raise StoreUnavailable


@pytest.fixture
def store() -> CartStore:
    """The suite of stores tests their behaviour; here one is enough."""
    return MemoryCartStore(ttl_seconds=3600)


@pytest.fixture
async def channel(store: CartStore) -> AsyncIterator[grpc.aio.Channel]:
    async with connect(
        (add_CartServiceServicer_to_server, CartService(store, Telemetry())),
        (add_OrderedCartServicer_to_server, OrderedCart(store)),
        (add_CartLinesServicer_to_server, CartLines(store)),
    ) as opened:
        yield opened


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> CartServiceStub:
    return CartServiceStub(channel)


@pytest.fixture
def ordered(channel: grpc.aio.Channel) -> OrderedCartStub:
    return OrderedCartStub(channel)


@pytest.fixture
def lines(channel: grpc.aio.Channel) -> CartLinesStub:
    return CartLinesStub(channel)


async def add(stub: CartServiceStub, item: cart_pb2.CartItem | None = TWO_PANS, **metadata: str) -> None:
    named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    await stub.AddItem(cart_pb2.AddItemRequest(user_id="ada", item=item), metadata=named)


async def read(stub: CartServiceStub, user_id: str = "ada") -> tuple[list[cart_pb2.CartItem], dict[str, str]]:
    """Return the items of a cart, and its trailing metadata: the etags."""
    call = stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
    items = list((await call).items)
    return items, {name: str(value) for name, value in await call.trailing_metadata()}


async def test_an_added_item_is_in_the_cart_of_its_user(stub: CartServiceStub) -> None:
    assert await stub.GetCart(ADA) == cart_pb2.Cart(user_id="ada")
    await add(stub)
    assert await stub.GetCart(ADA) == cart_pb2.Cart(user_id="ada", items=[TWO_PANS])


async def test_a_repeated_addition_takes_effect_and_is_counted_once(store: CartStore) -> None:
    telemetry = Telemetry()
    async with connect((add_CartServiceServicer_to_server, CartService(store, telemetry))) as channel:
        stub = CartServiceStub(channel)
        for _ in range(3):
            await add(stub, idempotency_key="k")
        await add(stub, cart_pb2.CartItem(product_id="tent", quantity=5))
        reused = add(stub, cart_pb2.CartItem(product_id="tent", quantity=1), idempotency_key="k")
        assert await failure_of(reused) == (grpc.StatusCode.INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED")
        items, _ = await read(stub)
    assert [(item.product_id, item.quantity) for item in items] == [("pan", 2), ("tent", 5)]
    assert telemetry.counter(semconv.CART_ITEMS_ADDED).values == {(): 7}


@pytest.mark.parametrize(("if_match", "left"), [(None, 0), ("current", 0), ("stale", 4)])
async def test_a_cart_is_emptied_unless_its_etag_is_stale(
    stub: CartServiceStub, if_match: str | None, left: int
) -> None:
    etags = {}
    for name in ("stale", "current"):
        await add(stub)
        etags[name] = (await read(stub))[1]["etag"]
    metadata = () if if_match is None else (("if-match", etags[if_match]),)
    await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id="ada"), metadata=metadata)
    items, _ = await read(stub)
    assert sum(item.quantity for item in items) == left


async def test_the_quantity_of_a_product_in_the_cart_is_set(stub: CartServiceStub, lines: CartLinesStub) -> None:
    await add(stub)
    await lines.SetQuantity(SetQuantityRequest(user_id="ada", item=cart_pb2.CartItem(product_id="pan", quantity=7)))
    items, _ = await read(stub)
    assert [item.quantity for item in items] == [7]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"user_id": ""}, "user_id"),
        ({"item": None}, "item"),
        ({"item": cart_pb2.CartItem(quantity=1)}, "item.product_id"),
        ({"item": cart_pb2.CartItem(product_id="pan", quantity=-1)}, "item.quantity"),
        ({"item": cart_pb2.CartItem(product_id="pan", quantity=10_001)}, "item.quantity"),
    ],
)
async def test_an_invalid_new_quantity_is_rejected_with_the_name_of_the_field(
    lines: CartLinesStub, changes: dict[str, Any], field: str
) -> None:
    request = SetQuantityRequest(**{"user_id": "ada", "item": TWO_PANS, **changes})
    assert await rejected_fields(lines.SetQuantity(request)) == [field]


async def test_ordered_items_are_removed_and_later_ones_remain(stub: CartServiceStub, ordered: OrderedCartStub) -> None:
    await add(stub)
    _, before = await read(stub)
    tent = cart_pb2.CartItem(product_id="tent", quantity=1)
    await add(stub, tent)
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=before["etag"], items=[TWO_PANS]))
    items, after = await read(stub)
    assert items == [tent]
    assert "ordered-etag" not in after
    assert after["cart-generation"] != before["cart-generation"]


async def test_a_cart_that_an_order_emptied_is_returned_with_the_ordered_etag(
    stub: CartServiceStub, ordered: OrderedCartStub
) -> None:
    await add(stub)
    _, before = await read(stub)
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=before["etag"], items=[TWO_PANS]))
    _, after = await read(stub)
    assert after["ordered-etag"] == before["etag"]
    assert after["cart-generation"] == before["cart-generation"] == before["etag"][:16]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"user_id": ""}, "user_id"),
        ({"etag": "x" * 129}, "etag"),
        ({"etag": "ключ"}, "etag"),
        ({"etag": "two words"}, "etag"),
        ({"items": [cart_pb2.CartItem(product_id="", quantity=1)]}, "items[0].product_id"),
        ({"items": [TWO_PANS, cart_pb2.CartItem(product_id="pan", quantity=0)]}, "items[1].quantity"),
        ({"items": [TWO_PANS] * 201}, "items"),
    ],
)
async def test_an_invalid_removal_is_rejected_with_the_name_of_the_field(
    ordered: OrderedCartStub, changes: dict[str, Any], field: str
) -> None:
    valid = {"user_id": "ada", "etag": "e", "items": [TWO_PANS]}
    request = RemoveOrderedRequest(**{**valid, **changes})
    assert await rejected_fields(ordered.RemoveOrdered(request)) == [field]


async def test_ordered_items_of_several_carts_are_removed_in_one_call(
    stub: CartServiceStub, ordered: OrderedCartStub
) -> None:
    removals = []
    for user_id in ("ada", "bob"):
        await stub.AddItem(cart_pb2.AddItemRequest(user_id=user_id, item=TWO_PANS))
        etag = (await read(stub, user_id))[1]["etag"]
        removals.append(RemoveOrderedRequest(user_id=user_id, etag=etag, items=[TWO_PANS]))
    refused = RemoveOrderedRequest(user_id="", etag="e", items=[TWO_PANS])
    request = RemoveAllOrderedRequest(removals=[removals[0], refused, removals[1]])
    response = await ordered.RemoveAllOrdered(request)
    assert [(refusal.index, refusal.reason) for refusal in response.refused] == [(1, "INVALID_ARGUMENT")]
    assert [(await read(stub, user_id))[0] for user_id in ("ada", "bob")] == [[], []]


async def test_too_many_removals_in_one_call_are_rejected(ordered: OrderedCartStub) -> None:
    request = RemoveAllOrderedRequest(removals=[RemoveOrderedRequest()] * 101)
    assert await rejected_fields(ordered.RemoveAllOrdered(request)) == ["removals"]


async def test_an_addition_without_an_item_is_rejected_with_the_name_of_the_field(stub: CartServiceStub) -> None:
    assert await rejected_fields(add(stub, None)) == ["item"]


@pytest.mark.parametrize("method", ["GetCart", "EmptyCart"])
async def test_an_empty_user_id_is_an_invalid_argument(stub: CartServiceStub, method: str) -> None:
    request = getattr(cart_pb2, f"{method}Request")()
    assert await rejected_fields(getattr(stub, method)(request)) == ["user_id"]


async def test_a_store_that_is_down_is_unavailable_with_a_retry_delay() -> None:
    async with connect(
        (add_CartServiceServicer_to_server, CartService(UnavailableStore(3600), Telemetry()))
    ) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await CartServiceStub(channel).GetCart(ADA)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert from_rpc_error(refused.value).retry_after_seconds == 1
