"""The behaviour that all stores share; conftest.py lists them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from cart_service.domain import (
    MAX_LINES,
    MAX_QUANTITY,
    Addition,
    CartFull,
    CartStore,
    Line,
    NewQuantity,
    Purchase,
    QuantityTooLarge,
)
from chassis.errors import IdempotencyKeyReused

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]


async def quantities(store: CartStore, user_id: str = "ada") -> dict[str, int]:
    return {line.product_id: line.quantity for line in (await store.read(user_id)).lines}


async def etag(store: CartStore, user_id: str = "ada") -> str:
    return (await store.read(user_id)).etag


async def add(store: CartStore, product_id: str, quantity: int = 1, key: str | None = None) -> None:
    await store.add(Addition("ada", product_id, quantity, key))


async def remove_ordered(store: CartStore, order_id: str = "order-1", etag: str = "stale", **quantities: int) -> None:
    lines = tuple(Line(product_id, quantity) for product_id, quantity in quantities.items())
    await store.remove_ordered(Purchase("ada", order_id, etag, lines))


async def ordered_cart(store: CartStore) -> str:
    """Let an order of the current etag empty ada's cart; return that etag."""
    await add(store, "pan", 2)
    ordered = await etag(store)
    await remove_ordered(store, etag=ordered, pan=2)
    return ordered


async def fill(store: CartStore) -> None:
    for number in range(MAX_LINES):
        await add(store, f"product-{number}")


async def test_an_unknown_user_has_a_cart_without_lines(store: CartStore) -> None:
    cart = await store.read("ada")
    assert (cart.user_id, cart.lines) == ("ada", ())


async def test_quantities_of_the_same_product_add_up(store: CartStore) -> None:
    await add(store, "pan", 2)
    await add(store, "pan", 3)
    assert await quantities(store) == {"pan": 5}


async def test_lines_are_sorted_by_product(store: CartStore) -> None:
    for product_id in ("pan", "axe", "tent"):
        await add(store, product_id)
    assert (await store.read("ada")).lines == (Line("axe", 1), Line("pan", 1), Line("tent", 1))


async def test_each_user_has_a_cart_of_their_own(store: CartStore) -> None:
    await add(store, "pan")
    assert await quantities(store, "bob") == {}


@pytest.mark.parametrize("product_id", ["ж" * 64, "a:b", "{x}", " ", '"', "\\"])
async def test_any_text_can_be_an_id(store: CartStore, product_id: str) -> None:
    await add(store, product_id)
    assert await quantities(store) == {product_id: 1}


async def test_an_emptied_cart_has_no_lines(store: CartStore) -> None:
    await add(store, "pan")
    await store.empty("ada", None)
    assert await quantities(store) == {}


async def test_emptying_an_unknown_cart_is_no_error(store: CartStore) -> None:
    await store.empty("unknown", None)
    await store.empty("unknown", "some etag")


async def test_the_etag_is_stable_while_the_cart_is_unchanged(store: CartStore) -> None:
    await add(store, "pan")
    assert await etag(store) == await etag(store)


async def test_each_addition_changes_the_etag(store: CartStore) -> None:
    etags = set()
    for _ in range(3):
        await add(store, "pan")
        etags.add(await etag(store))
    assert len(etags) == 3


async def test_a_cart_refilled_with_the_same_items_has_another_etag(store: CartStore) -> None:
    await add(store, "pan")
    first = await etag(store)
    await store.empty("ada", None)
    await add(store, "pan")
    assert await etag(store) != first


async def test_two_empty_carts_have_different_etags(store: CartStore) -> None:
    assert await etag(store) != await etag(store)


async def test_the_current_etag_empties_the_cart(store: CartStore) -> None:
    await add(store, "pan")
    await store.empty("ada", await etag(store))
    assert await quantities(store) == {}


async def test_a_stale_etag_leaves_the_cart_unchanged(store: CartStore) -> None:
    await add(store, "pan")
    stale = await etag(store)
    await add(store, "tent")
    await store.empty("ada", stale)
    assert await quantities(store) == {"pan": 1, "tent": 1}


@pytest.mark.parametrize("wrong", ["", "*", "0" * 32])
async def test_any_other_etag_has_no_effect(store: CartStore, wrong: str) -> None:
    await add(store, "pan")
    await store.empty("ada", wrong)
    assert await quantities(store) == {"pan": 1}


async def test_an_addition_with_a_key_takes_effect_once(store: CartStore) -> None:
    await add(store, "pan", 2, key="k")
    await add(store, "pan", 2, key="k")
    assert await quantities(store) == {"pan": 2}


async def test_a_repeated_addition_does_not_change_the_etag(store: CartStore) -> None:
    await add(store, "pan", key="k")
    before = await etag(store)
    await add(store, "pan", key="k")
    assert await etag(store) == before


async def test_emptying_a_cart_does_not_clear_its_keys(store: CartStore) -> None:
    await add(store, "pan", key="k")
    await store.empty("ada", None)
    await add(store, "pan", key="k")
    assert await quantities(store) == {}


@pytest.mark.parametrize(("product_id", "quantity"), [("tent", 1), ("pan", 2)])
async def test_a_key_reused_for_another_request_is_rejected(store: CartStore, product_id: str, quantity: int) -> None:
    await add(store, "pan", 1, key="k")
    with pytest.raises(IdempotencyKeyReused):
        await add(store, product_id, quantity, key="k")
    assert await quantities(store) == {"pan": 1}


async def test_a_key_belongs_to_its_user(store: CartStore) -> None:
    await store.add(Addition("ada", "pan", 1, "b:k"))
    await store.add(Addition("ada:b", "tent", 1, "k"))
    assert await quantities(store, "ada:b") == {"tent": 1}


async def test_a_cart_holds_at_most_two_hundred_products(store: CartStore) -> None:
    await fill(store)
    with pytest.raises(CartFull):
        await add(store, "one too many")
    assert len(await quantities(store)) == MAX_LINES


async def test_a_full_cart_accepts_more_of_a_product_it_contains(store: CartStore) -> None:
    await fill(store)
    await add(store, "product-7")
    assert (await quantities(store))["product-7"] == 2


async def test_a_sum_beyond_int32_is_rejected_and_changes_nothing(store: CartStore, nearly_full: int) -> None:
    before = await etag(store)
    with pytest.raises(QuantityTooLarge):
        await add(store, "pan", MAX_QUANTITY - nearly_full + 1)
    assert (await quantities(store), await etag(store)) == ({"pan": nearly_full}, before)


async def test_a_sum_of_the_largest_int32_is_accepted(store: CartStore, nearly_full: int) -> None:
    await add(store, "pan", MAX_QUANTITY - nearly_full)
    assert await quantities(store) == {"pan": MAX_QUANTITY}


@pytest.fixture
async def nearly_full(store: CartStore, monkeypatch: pytest.MonkeyPatch) -> int:
    """The quantity of pans in ada's cart, close to the maximum."""
    monkeypatch.setattr("cart_service.domain._MAX_ADDED", MAX_QUANTITY)
    await add(store, "pan", MAX_QUANTITY - 10)
    return MAX_QUANTITY - 10


async def test_a_rejected_addition_does_not_consume_its_key(store: CartStore) -> None:
    await fill(store)
    with pytest.raises(CartFull):
        await add(store, "pan", key="k")
    await store.empty("ada", None)
    await add(store, "pan", key="k")
    assert await quantities(store) == {"pan": 1}


async def test_a_cart_expires_after_its_last_change(open_store: OpenStore) -> None:
    async with open_store(ttl_seconds=0.2) as store, asyncio.timeout(20):
        await add(store, "pan")
        while await quantities(store):  # noqa: ASYNC110 - expiry sends no notification
            await asyncio.sleep(0.05)


async def test_a_thousand_concurrent_additions_all_count(store: CartStore) -> None:
    await asyncio.gather(*(add(store, "pan") for _ in range(1000)))
    assert await quantities(store) == {"pan": 1000}


async def test_a_thousand_additions_delivered_twice_count_once_each(store: CartStore) -> None:
    await asyncio.gather(*(add(store, "pan", key=f"k{number % 1000}") for number in range(2000)))
    assert await quantities(store) == {"pan": 1000}


async def test_an_order_of_the_current_etag_empties_the_cart(store: CartStore) -> None:
    await ordered_cart(store)
    assert await quantities(store) == {}


@pytest.mark.parametrize(
    ("added", "ordered", "left"),
    [
        ({"pan": 5, "axe": 1, "tent": 1}, {"pan": 2, "axe": 1}, {"pan": 3, "tent": 1}),
        ({"pan": 1, "tent": 1}, {"pan": 2, "axe": 1}, {"tent": 1}),
    ],
)
async def test_an_order_of_a_stale_etag_removes_its_quantities_as_far_as_the_cart_has_them_once(
    store: CartStore, added: dict[str, int], ordered: dict[str, int], left: dict[str, int]
) -> None:
    for product_id, quantity in added.items():
        await add(store, product_id, quantity)
    purchase = Purchase("ada", "order-1", "stale", tuple(Line(*line) for line in ordered.items()))
    for _ in range(2):
        await store.remove_ordered(purchase)
        assert await quantities(store) == left


async def test_a_repeated_removal_leaves_a_refilled_cart_unchanged(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    await add(store, "pan", 2)
    await remove_ordered(store, etag=ordered, pan=2)
    assert await quantities(store) == {"pan": 2}


async def test_a_removal_that_found_no_cart_is_not_made_up_for_later(store: CartStore) -> None:
    await remove_ordered(store, pan=2)
    await add(store, "pan", 2)
    await remove_ordered(store, pan=2)
    assert await quantities(store) == {"pan": 2}


async def test_two_orders_each_remove_their_quantities(store: CartStore) -> None:
    await add(store, "pan", 5)
    await remove_ordered(store, "order-1", pan=2)
    await remove_ordered(store, "order-2", pan=2)
    assert await quantities(store) == {"pan": 1}


async def test_an_order_id_belongs_to_its_user(store: CartStore) -> None:
    await store.add(Addition("bob", "pan", 5))
    await remove_ordered(store, "order-1", pan=2)
    await store.remove_ordered(Purchase("bob", "order-1", "stale", (Line("pan", 2),)))
    assert await quantities(store, "bob") == {"pan": 3}


async def test_a_removal_that_leaves_items_changes_the_etag(store: CartStore) -> None:
    await add(store, "pan", 5)
    before = await etag(store)
    await remove_ordered(store, pan=2)
    assert await etag(store) != before


async def test_a_removal_of_products_that_the_cart_does_not_have_leaves_the_etag_unchanged(store: CartStore) -> None:
    await add(store, "pan", 5)
    before = await etag(store)
    await remove_ordered(store, tent=1)
    assert await etag(store) == before


async def test_a_cart_that_an_order_emptied_has_the_ordered_etag_and_a_new_one_at_each_read(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    assert (await store.read("ada")).ordered_etag == ordered
    assert len({ordered, await etag(store), await etag(store)}) == 3


async def test_a_cart_that_an_order_emptied_item_by_item_has_the_ordered_etag(store: CartStore) -> None:
    await add(store, "pan", 1)
    await remove_ordered(store, etag="stale", pan=2)
    assert (await store.read("ada")).ordered_etag == "stale"


async def test_emptying_an_empty_cart_leaves_its_ordered_etag(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    await store.empty("ada", ordered)
    await store.empty("ada", None)
    assert (await store.read("ada")).ordered_etag == ordered


async def test_a_refilled_cart_has_no_ordered_etag_nor_when_its_user_empties_it(store: CartStore) -> None:
    await ordered_cart(store)
    await add(store, "pan", 2)
    assert (await store.read("ada")).ordered_etag is None
    await store.empty("ada", None)
    assert (await store.read("ada")).ordered_etag is None


async def test_a_removal_that_finds_an_empty_cart_leaves_it_without_an_ordered_etag(store: CartStore) -> None:
    await remove_ordered(store, etag="stale", pan=2)
    assert (await store.read("ada")).ordered_etag is None


async def test_an_ordered_etag_expires_with_the_lifetime_of_the_cart(open_store: OpenStore) -> None:
    async with open_store(ttl_seconds=0.2) as store, asyncio.timeout(20):
        await add(store, "pan")
        await remove_ordered(store, pan=1)
        while (await store.read("ada")).ordered_etag:  # noqa: ASYNC110 - expiry sends no notification
            await asyncio.sleep(0.05)


async def test_concurrent_repeats_of_a_removal_take_effect_once(store: CartStore) -> None:
    await add(store, "pan", 1000)
    await asyncio.gather(*(remove_ordered(store, f"order-{number % 30}", pan=1) for number in range(300)))
    assert await quantities(store) == {"pan": 970}


async def test_a_store_that_responds_is_ready(store: CartStore) -> None:
    await store.check()


async def set_quantity(store: CartStore, product_id: str, quantity: int) -> None:
    await store.set_quantity(NewQuantity("ada", product_id, quantity))


async def test_the_quantity_of_a_product_is_set(store: CartStore) -> None:
    await add(store, "pan", 2)
    await set_quantity(store, "pan", 7)
    assert await quantities(store) == {"pan": 7}


async def test_a_product_is_removed_by_the_quantity_0(store: CartStore) -> None:
    await add(store, "pan")
    await add(store, "axe")
    await set_quantity(store, "pan", 0)
    assert await quantities(store) == {"axe": 1}


async def test_a_cart_whose_last_product_is_removed_was_not_ordered(store: CartStore) -> None:
    await add(store, "pan")
    await set_quantity(store, "pan", 0)
    cart = await store.read("ada")
    assert (cart.lines, cart.ordered_etag) == ((), None)


async def test_a_product_that_is_not_in_the_cart_is_not_added_by_a_quantity(store: CartStore) -> None:
    await add(store, "axe")
    before = await etag(store)
    await set_quantity(store, "pan", 1)
    assert (await quantities(store), await etag(store)) == ({"axe": 1}, before)


async def test_a_cart_that_an_order_emptied_is_not_changed_by_a_quantity(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    await set_quantity(store, "pan", 3)
    assert (await store.read("ada")).ordered_etag == ordered


async def test_a_new_quantity_changes_the_etag(store: CartStore) -> None:
    await add(store, "pan", 2)
    before = await etag(store)
    await set_quantity(store, "pan", 3)
    assert await etag(store) != before
