import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import pytest
from typing_extensions import override

from cart_service.domain import Addition, Cart, CartStore, NewQuantity, Purchase, StoreUnavailable
from cart_service.service import CartLines, CartService, OrderedCart
from chassis.errors import InvalidArgument
from chassis.rpc.status import from_rpc_error
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub, add_CartServiceServicer_to_server
from shop_internal.cart_lines_pb2 import SetQuantityRequest
from shop_internal.cart_lines_pb2_grpc import CartLinesStub, add_CartLinesServicer_to_server
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedRequest, RemoveOrderedRequest
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub, add_OrderedCartServicer_to_server
from shop_kit.serving import connect, serve

TWO_PANS = cart_pb2.CartItem(product_id="pan", quantity=2)
ADA = cart_pb2.GetCartRequest(user_id="ada")


class UnavailableStore(CartStore):
    @override
    async def add(self, addition: Addition) -> bool:
        raise StoreUnavailable

    @override
    async def read(self, user_id: str) -> Cart:
        raise StoreUnavailable

    @override
    async def empty(self, user_id: str, if_match: str | None) -> None:
        raise StoreUnavailable

    @override
    async def set_quantity(self, new: NewQuantity) -> None:
        raise StoreUnavailable

    @override
    async def remove_ordered(self, purchase: Purchase) -> None:
        raise StoreUnavailable

    @override
    async def check(self) -> None:
        raise StoreUnavailable


@pytest.fixture
async def stub(store: CartStore) -> AsyncIterator[CartServiceStub]:
    async with connect((add_CartServiceServicer_to_server, CartService(store, Telemetry()))) as channel:
        yield CartServiceStub(channel)


@pytest.fixture
async def ordered(store: CartStore) -> AsyncIterator[OrderedCartStub]:
    async with connect((add_OrderedCartServicer_to_server, OrderedCart(store))) as channel:
        yield OrderedCartStub(channel)


@pytest.fixture
async def lines(store: CartStore) -> AsyncIterator[CartLinesStub]:
    async with connect((add_CartLinesServicer_to_server, CartLines(store))) as channel:
        yield CartLinesStub(channel)


async def add(stub: CartServiceStub, item: cart_pb2.CartItem | None = TWO_PANS, **metadata: str) -> None:
    named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    await stub.AddItem(cart_pb2.AddItemRequest(user_id="ada", item=item), metadata=named)


async def read(stub: CartServiceStub) -> tuple[cart_pb2.Cart, str]:
    call = stub.GetCart(ADA)
    cart = await call
    return cart, str(dict(await call.trailing_metadata())["etag"])


async def refusal(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def test_an_added_item_is_in_the_cart(stub: CartServiceStub) -> None:
    await add(stub)
    cart, _ = await read(stub)
    assert cart == cart_pb2.Cart(user_id="ada", items=[TWO_PANS])


async def test_added_quantities_are_counted_once(store: CartStore) -> None:
    telemetry = Telemetry()
    async with connect((add_CartServiceServicer_to_server, CartService(store, telemetry))) as channel:
        stub = CartServiceStub(channel)
        for _ in range(3):
            await add(stub, idempotency_key="k")
        await add(stub, cart_pb2.CartItem(product_id="tent", quantity=5))
        await refusal(add(stub, cart_pb2.CartItem(product_id="tent", quantity=1), idempotency_key="k"))
    assert telemetry.counter(semconv.CART_ITEMS_ADDED).values == {(): 7}


async def test_an_unknown_user_gets_a_cart_with_their_id_and_no_items(stub: CartServiceStub) -> None:
    cart, _ = await read(stub)
    assert cart == cart_pb2.Cart(user_id="ada")


async def test_the_etag_is_returned_with_the_cart_and_changes_with_it(stub: CartServiceStub) -> None:
    await add(stub)
    _, before = await read(stub)
    await add(stub)
    _, after = await read(stub)
    assert before != after


async def test_an_emptied_cart_is_empty(stub: CartServiceStub) -> None:
    await add(stub)
    await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id="ada"))
    cart, _ = await read(stub)
    assert not cart.items


async def test_emptying_with_a_stale_etag_is_ok_and_has_no_effect(stub: CartServiceStub) -> None:
    await add(stub)
    _, stale = await read(stub)
    await add(stub)
    await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id="ada"), metadata=(("if-match", stale),))
    cart, _ = await read(stub)
    assert cart.items[0].quantity == 4


async def test_emptying_with_the_current_etag_empties_the_cart(stub: CartServiceStub) -> None:
    await add(stub)
    _, etag = await read(stub)
    await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id="ada"), metadata=(("if-match", etag),))
    cart, _ = await read(stub)
    assert not cart.items


async def test_the_quantity_of_a_product_in_the_cart_is_set(stub: CartServiceStub, lines: CartLinesStub) -> None:
    await add(stub)
    await lines.SetQuantity(SetQuantityRequest(user_id="ada", item=cart_pb2.CartItem(product_id="pan", quantity=7)))
    cart, _ = await read(stub)
    assert [item.quantity for item in cart.items] == [7]


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
    rejected = from_rpc_error(await refusal(lines.SetQuantity(request)))
    assert isinstance(rejected, InvalidArgument)
    assert [violation.field for violation in rejected.violations] == [field]


async def test_ordered_items_are_removed_and_later_ones_remain(stub: CartServiceStub, ordered: OrderedCartStub) -> None:
    await add(stub)
    _, etag = await read(stub)
    tent = cart_pb2.CartItem(product_id="tent", quantity=1)
    await add(stub, tent)
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=etag, order_id="order-1", items=[TWO_PANS]))
    cart, _ = await read(stub)
    assert list(cart.items) == [tent]


async def test_a_cart_that_an_order_emptied_is_returned_with_the_ordered_etag(
    stub: CartServiceStub, ordered: OrderedCartStub
) -> None:
    await add(stub)
    _, etag = await read(stub)
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=etag, order_id="order-1", items=[TWO_PANS]))
    call = stub.GetCart(ADA)
    await call
    assert dict(await call.trailing_metadata())["ordered-etag"] == etag


async def test_a_cart_that_no_order_emptied_is_returned_without_an_ordered_etag(stub: CartServiceStub) -> None:
    call = stub.GetCart(ADA)
    await call
    assert "ordered-etag" not in dict(await call.trailing_metadata())


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"user_id": ""}, "user_id"),
        ({"order_id": ""}, "order_id"),
        ({"order_id": "x" * 129}, "order_id"),
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
    valid = {"user_id": "ada", "etag": "e", "order_id": "order-1", "items": [TWO_PANS]}
    rejected = from_rpc_error(await refusal(ordered.RemoveOrdered(RemoveOrderedRequest(**{**valid, **changes}))))
    assert isinstance(rejected, InvalidArgument)
    assert [violation.field for violation in rejected.violations] == [field]


async def test_ordered_items_of_several_carts_are_removed_in_one_call(
    stub: CartServiceStub, ordered: OrderedCartStub
) -> None:
    removals = []
    for user_id in ("ada", "bob"):
        await stub.AddItem(cart_pb2.AddItemRequest(user_id=user_id, item=TWO_PANS))
        call = stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
        await call
        etag = str(dict(await call.trailing_metadata())["etag"])
        removals.append(RemoveOrderedRequest(user_id=user_id, etag=etag, order_id=f"of {user_id}", items=[TWO_PANS]))
    refused = RemoveOrderedRequest(user_id="ada", etag="e", order_id="", items=[TWO_PANS])
    request = RemoveAllOrderedRequest(removals=[removals[0], refused, removals[1]])
    response = await ordered.RemoveAllOrdered(request)
    assert [(each.index, each.reason) for each in response.refused] == [(1, "INVALID_ARGUMENT")]
    carts = [await stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id)) for user_id in ("ada", "bob")]
    assert [list(cart.items) for cart in carts] == [[], []]


async def test_too_many_removals_in_one_call_are_rejected(ordered: OrderedCartStub) -> None:
    request = RemoveAllOrderedRequest(removals=[RemoveOrderedRequest()] * 101)
    rejected = from_rpc_error(await refusal(ordered.RemoveAllOrdered(request)))
    assert isinstance(rejected, InvalidArgument)
    assert [violation.field for violation in rejected.violations] == ["removals"]


async def test_a_repeated_key_takes_effect_once(stub: CartServiceStub) -> None:
    await add(stub, idempotency_key="k")
    await add(stub, idempotency_key="k")
    cart, _ = await read(stub)
    assert cart.items[0].quantity == 2


async def test_a_key_reused_for_another_request_is_an_invalid_argument_with_its_reason(stub: CartServiceStub) -> None:
    await add(stub, idempotency_key="k")
    error = await refusal(add(stub, cart_pb2.CartItem(product_id="tent", quantity=1), idempotency_key="k"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(error).reason == "IDEMPOTENCY_KEY_REUSED"


async def test_an_addition_without_an_item_is_rejected_with_the_name_of_the_field(stub: CartServiceStub) -> None:
    error = await refusal(add(stub, None))
    rejected = from_rpc_error(error)
    assert isinstance(rejected, InvalidArgument)
    assert [violation.field for violation in rejected.violations] == ["item"]


@pytest.mark.parametrize("method", ["GetCart", "EmptyCart"])
async def test_an_empty_user_id_is_an_invalid_argument(stub: CartServiceStub, method: str) -> None:
    request = getattr(cart_pb2, f"{method}Request")()
    error = await refusal(getattr(stub, method)(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_full_cart_is_a_failed_precondition(stub: CartServiceStub) -> None:
    for number in range(200):
        await add(stub, cart_pb2.CartItem(product_id=f"product-{number}", quantity=1))
    error = await refusal(add(stub))
    assert (error.code(), from_rpc_error(error).reason) == (grpc.StatusCode.FAILED_PRECONDITION, "CART_FULL")


async def test_a_store_that_is_down_is_unavailable_with_a_retry_delay() -> None:
    async with connect((add_CartServiceServicer_to_server, CartService(UnavailableStore(), Telemetry()))) as channel:
        error = await refusal(CartServiceStub(channel).GetCart(ADA))
    assert (error.code(), from_rpc_error(error).retry_after_seconds) == (grpc.StatusCode.UNAVAILABLE, 1)


async def test_a_thousand_concurrent_calls_add_exactly_a_thousand(store: CartStore) -> None:
    servicer = (add_CartServiceServicer_to_server, CartService(store, Telemetry()))
    async with serve(servicer, max_concurrent_rpcs=1000) as address, grpc.aio.insecure_channel(address) as channel:
        stub = CartServiceStub(channel)
        one = cart_pb2.CartItem(product_id="pan", quantity=1)
        await asyncio.gather(*(add(stub, one) for _ in range(1000)))
        cart, _ = await read(stub)
    assert cart.items[0].quantity == 1000
