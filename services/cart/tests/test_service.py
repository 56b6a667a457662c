from collections.abc import AsyncIterator

import grpc
import pytest
from google.protobuf.message import Message

from cart_service.domain import Cart, CartStore, StoreUnavailable
from cart_service.service import CartService
from cart_service.store import MemoryCartStore
from chassis.rpc.status import from_rpc_error
from chassis.telemetry import semconv
from chassis.telemetry.instruments import Telemetry
from shop import cart_pb2
from shop.cart_pb2_grpc import CartServiceStub
from shop_internal.cart_lines_pb2 import SetQuantityRequest
from shop_internal.cart_lines_pb2_grpc import CartLinesStub
from shop_internal.ordered_cart_pb2 import RemoveAllOrderedRequest, RemoveOrderedRequest
from shop_internal.ordered_cart_pb2_grpc import OrderedCartStub
from shop_kit.failing import error_of, failure_of, rejected_fields
from shop_kit.serving import connect


def item(product_id: str, quantity: int = 1) -> cart_pb2.CartItem:
    return cart_pb2.CartItem(product_id=product_id, quantity=quantity)


TWO_PANS = item("pan", 2)
ADA = cart_pb2.GetCartRequest(user_id="ada")


@pytest.fixture
def store() -> CartStore:
    """A memory store is enough here, because test_store.py tests how all stores behave."""
    return MemoryCartStore(ttl_seconds=3600)


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def channel(store: CartStore, telemetry: Telemetry) -> AsyncIterator[grpc.aio.Channel]:
    async with connect(CartService(store, telemetry)) as opened:
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


async def add(stub: CartServiceStub, added: cart_pb2.CartItem = TWO_PANS, **metadata: str) -> None:
    named = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    await stub.AddItem(cart_pb2.AddItemRequest(user_id="ada", item=added), metadata=named)


async def read(stub: CartServiceStub, user_id: str = "ada") -> tuple[list[cart_pb2.CartItem], dict[str, str]]:
    """Return a cart's items, and the trailing metadata with its etags."""
    call = stub.GetCart(cart_pb2.GetCartRequest(user_id=user_id))
    items = list((await call).items)
    return items, {name: str(value) for name, value in await call.trailing_metadata()}


async def test_an_added_item_is_in_the_cart_of_its_user(stub: CartServiceStub) -> None:
    assert await stub.GetCart(ADA) == cart_pb2.Cart(user_id="ada")
    await add(stub)
    assert await stub.GetCart(ADA) == cart_pb2.Cart(user_id="ada", items=[TWO_PANS])


async def test_a_repeated_addition_has_effect_and_is_counted_once(stub: CartServiceStub, telemetry: Telemetry) -> None:
    for _ in range(3):
        await add(stub, idempotency_key="k")
    await add(stub, item("tent", 5))
    reused = add(stub, item("tent"), idempotency_key="k")
    assert await failure_of(reused) == (grpc.StatusCode.INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED")
    items, _ = await read(stub)
    assert items == [TWO_PANS, item("tent", 5)]
    assert telemetry.counter(semconv.CART_ITEMS_ADDED).values == {(): 7}


@pytest.mark.parametrize(("if_match", "left"), [(None, 0), ("current", 0), ("stale", 4)])
async def test_a_cart_empties_unless_its_etag_is_stale(stub: CartServiceStub, if_match: str | None, left: int) -> None:
    etags = {}
    for name in ("stale", "current"):
        await add(stub)
        etags[name] = (await read(stub))[1]["etag"]
    metadata = () if if_match is None else (("if-match", etags[if_match]),)
    await stub.EmptyCart(cart_pb2.EmptyCartRequest(user_id="ada"), metadata=metadata)
    items, _ = await read(stub)
    assert sum(found.quantity for found in items) == left


async def test_the_quantity_of_a_product_in_the_cart_is_set(stub: CartServiceStub, lines: CartLinesStub) -> None:
    await add(stub)
    await lines.SetQuantity(SetQuantityRequest(user_id="ada", item=item("pan", 7)))
    assert (await read(stub))[0] == [item("pan", 7)]


async def test_ordered_items_are_removed_and_a_cart_that_an_order_emptied_has_the_ordered_etag(
    stub: CartServiceStub, ordered: OrderedCartStub
) -> None:
    await add(stub)
    _, before = await read(stub)
    tent = item("tent")
    await add(stub, tent)
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=before["etag"], items=[TWO_PANS]))
    items, after = await read(stub)
    assert items == [tent]
    assert "ordered-etag" not in after
    assert after["cart-generation"] != before["cart-generation"]
    await ordered.RemoveOrdered(RemoveOrderedRequest(user_id="ada", etag=after["etag"], items=[tent]))
    items, emptied = await read(stub)
    assert (items, emptied["ordered-etag"]) == ([], after["etag"])
    assert len({found["etag"] for found in (before, after, emptied, (await read(stub))[1])}) == 4
    assert emptied["cart-generation"] == after["cart-generation"] == after["etag"][:16]


@pytest.mark.parametrize(
    ("invalid", "field"),
    [
        (cart_pb2.GetCartRequest(), "user_id"),
        (cart_pb2.EmptyCartRequest(), "user_id"),
        (cart_pb2.AddItemRequest(user_id="ada"), "item"),
        (SetQuantityRequest(item=TWO_PANS), "user_id"),
        (SetQuantityRequest(user_id="ada"), "item"),
        (SetQuantityRequest(user_id="ada", item=item("")), "item.product_id"),
        (SetQuantityRequest(user_id="ada", item=item("pan", -1)), "item.quantity"),
        (RemoveOrderedRequest(etag="e", items=[TWO_PANS]), "user_id"),
        *((RemoveOrderedRequest(user_id="ada", etag=etag), "etag") for etag in ("x" * 129, "ключ", "two words")),
        (RemoveOrderedRequest(user_id="ada", items=[item("")]), "items[0].product_id"),
        (RemoveOrderedRequest(user_id="ada", items=[TWO_PANS, item("pan", 0)]), "items[1].quantity"),
        (RemoveOrderedRequest(user_id="ada", items=[TWO_PANS] * 201), "items"),
        (RemoveAllOrderedRequest(removals=[RemoveOrderedRequest()] * 101), "removals"),
    ],
)
async def test_an_invalid_request_is_rejected_with_the_name_of_the_field(
    stub: CartServiceStub, lines: CartLinesStub, ordered: OrderedCartStub, invalid: Message, field: str
) -> None:
    method = type(invalid).__name__.removesuffix("Request")
    (call,) = (getattr(served, method) for served in (stub, lines, ordered) if hasattr(served, method))
    assert await rejected_fields(call(invalid)) == [field]


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


async def test_a_store_that_is_down_is_unavailable_with_a_retry_delay(
    stub: CartServiceStub, store: CartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_user_id: str) -> Cart:
        raise StoreUnavailable

    monkeypatch.setattr(store, "read", fail)
    refused = await error_of(stub.GetCart(ADA))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert from_rpc_error(refused).retry_after_seconds == 1
