"""The behaviour that all stores share, beside what test_machine.py covers; conftest.py lists the stores."""

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

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]


async def quantities(store: CartStore, user_id: str = "ada") -> dict[str, int]:
    return {line.product_id: line.quantity for line in (await store.read(user_id)).lines}


async def etag(store: CartStore, user_id: str = "ada") -> str:
    return (await store.read(user_id)).etag


async def add(store: CartStore, product_id: str, quantity: int = 1, key: str | None = None) -> None:
    await store.add(Addition("ada", product_id, quantity, key))


async def generation(store: CartStore) -> str:
    found = (await store.read("ada")).generation
    assert found
    return found


async def remove_ordered(store: CartStore, ordered: str, **quantities: int) -> None:
    lines = tuple(Line(product_id, quantity) for product_id, quantity in quantities.items())
    await store.remove_ordered(Purchase("ada", ordered, lines))


async def ordered_cart(store: CartStore) -> str:
    """Let an order of the current etag empty ada's cart; return that etag."""
    await add(store, "pan", 2)
    ordered = await etag(store)
    await remove_ordered(store, ordered, pan=2)
    return ordered


async def fill(store: CartStore) -> None:
    for number in range(MAX_LINES):
        await add(store, f"product-{number}")


@pytest.mark.parametrize("product_id", ["ж" * 64, "a:b", "{x}", " ", '"', "\\"])
async def test_any_text_can_be_an_id(store: CartStore, product_id: str) -> None:
    await add(store, product_id)
    assert await quantities(store) == {product_id: 1}


async def test_each_addition_changes_the_etag(store: CartStore) -> None:
    etags = set()
    for _ in range(3):
        await add(store, "pan")
        etags.add(await etag(store))
    assert len(etags) == 3


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


async def test_the_generation_stays_while_items_are_added_or_changed(store: CartStore) -> None:
    await add(store, "pan")
    before = await generation(store)
    await add(store, "tent", 3)
    await store.set_quantity(NewQuantity("ada", "tent", 2))
    await store.set_quantity(NewQuantity("ada", "pan", 0))
    assert (await generation(store), len(before)) == (before, 16)


async def test_a_cart_that_was_empty_begins_a_new_generation(store: CartStore) -> None:
    generations = {await ordered_cart(store)}
    for _ in range(2):
        await add(store, "pan")
        generations.add(await generation(store))
        await store.empty("ada", None)
    await add(store, "pan")
    generations.add(await generation(store))
    await store.set_quantity(NewQuantity("ada", "pan", 0))
    await add(store, "pan")
    generations.add(await generation(store))
    assert len({generation[:16] for generation in generations}) == 5
    await store.empty("ada", None)
    assert (await store.read("ada")).generation is None


async def test_a_repeated_removal_leaves_a_refilled_cart_unchanged(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    await add(store, "pan", 2)
    await remove_ordered(store, ordered, pan=2)
    assert await quantities(store) == {"pan": 2}


async def test_a_repeated_removal_leaves_later_items_unchanged(store: CartStore) -> None:
    await add(store, "pan", 2)
    ordered = await generation(store)
    await add(store, "pan", 3)
    for _ in range(3):
        await remove_ordered(store, ordered, pan=2)
    assert await quantities(store) == {"pan": 3}


@pytest.mark.parametrize("other", ["", "stale", "0" * 16, "0" * 32])
async def test_a_removal_from_another_generation_has_no_effect(store: CartStore, other: str) -> None:
    await add(store, "pan", 5)
    before = await store.read("ada")
    await remove_ordered(store, other, pan=2)
    assert await store.read("ada") == before


async def test_a_cart_that_its_user_emptied_and_refilled_keeps_its_items(store: CartStore) -> None:
    await add(store, "pan", 2)
    ordered = await etag(store)
    await store.empty("ada", None)
    await add(store, "pan", 1)
    await remove_ordered(store, ordered, pan=2)
    assert await quantities(store) == {"pan": 1}


async def test_a_removal_that_finds_none_of_its_products_begins_a_new_generation(store: CartStore) -> None:
    await add(store, "pan", 5)
    ordered = await generation(store)
    await remove_ordered(store, ordered, tent=1)
    assert (await quantities(store), await generation(store) == ordered) == ({"pan": 5}, False)


async def test_a_cart_that_an_order_emptied_item_by_item_is_known_by_its_generation(store: CartStore) -> None:
    await add(store, "pan", 2)
    ordered = await generation(store)
    await store.set_quantity(NewQuantity("ada", "pan", 1))
    await remove_ordered(store, ordered, pan=2)
    cart = await store.read("ada")
    assert (cart.lines, cart.ordered_etag, cart.generation) == ((), ordered, ordered)


async def test_a_cart_whose_last_product_is_removed_by_its_user_was_not_ordered(store: CartStore) -> None:
    await add(store, "pan")
    await store.set_quantity(NewQuantity("ada", "pan", 0))
    cart = await store.read("ada")
    assert (cart.lines, cart.ordered_etag) == ((), None)


async def test_emptying_an_empty_cart_leaves_its_ordered_etag(store: CartStore) -> None:
    ordered = await ordered_cart(store)
    await store.empty("ada", ordered)
    await store.empty("ada", None)
    assert (await store.read("ada")).ordered_etag == ordered


async def test_an_ordered_etag_expires_with_the_lifetime_of_the_cart(open_store: OpenStore) -> None:
    async with open_store(ttl_seconds=0.2) as store, asyncio.timeout(20):
        await ordered_cart(store)
        while (await store.read("ada")).ordered_etag:  # noqa: ASYNC110 - expiry sends no notification
            await asyncio.sleep(0.05)


async def test_concurrent_repeats_of_a_removal_take_effect_once(store: CartStore) -> None:
    await add(store, "pan", 1000)
    ordered = await generation(store)
    removals = [remove_ordered(store, ordered, pan=7) for _ in range(300)]
    await asyncio.gather(*removals, *(add(store, "pan") for _ in range(300)))
    assert await quantities(store) == {"pan": 1293}
