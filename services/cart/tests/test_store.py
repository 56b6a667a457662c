"""Tests of behaviour that all stores share and test_machine.py does not cover; conftest.py lists the stores."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from cart_service.domain import MAX_LINES, MAX_QUANTITY, Addition, CartFull, CartStore, Purchase, QuantityTooLarge
from chassis.values.orders import Item

OpenStore = Callable[..., AbstractAsyncContextManager[CartStore]]


async def quantities(store: CartStore, user_id: str = "ada") -> dict[str, int]:
    return {line.product_id: line.quantity for line in (await store.read(user_id)).lines}


async def add(store: CartStore, product_id: str, quantity: int = 1, key: str | None = None) -> None:
    await store.add(Addition("ada", product_id, quantity, key))


@pytest.mark.parametrize("product_id", ["ж" * 64, "a:b", "{x}", " ", '"', "\\"])
async def test_any_text_can_be_an_id(store: CartStore, product_id: str) -> None:
    await add(store, product_id)
    assert await quantities(store) == {product_id: 1}


async def test_an_addition_with_a_key_of_its_user_takes_effect_once(store: CartStore) -> None:
    for _ in range(2):
        await add(store, "pan", 2, key="b:k")
    await store.add(Addition("ada:b", "tent", 1, "k"))
    assert [await quantities(store, user_id) for user_id in ("ada", "ada:b")] == [{"pan": 2}, {"tent": 1}]


async def test_a_cart_holds_at_most_two_hundred_products_and_more_of_each(store: CartStore) -> None:
    for number in range(MAX_LINES):
        await add(store, f"product-{number}")
    with pytest.raises(CartFull):
        await add(store, "one too many", key="k")
    assert len(await quantities(store)) == MAX_LINES
    await add(store, "product-7")
    assert (await quantities(store))["product-7"] == 2
    await store.empty("ada", None)
    await add(store, "pan", key="k")  # the rejected addition has not used its key
    assert await quantities(store) == {"pan": 1}


async def test_a_sum_beyond_int32_changes_nothing(store: CartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cart_service.domain._MAX_ADDED", MAX_QUANTITY)
    await add(store, "pan", MAX_QUANTITY - 10)
    before = await store.read("ada")
    with pytest.raises(QuantityTooLarge):
        await add(store, "pan", 11)
    assert await store.read("ada") == before
    await add(store, "pan", 10)
    assert await quantities(store) == {"pan": MAX_QUANTITY}


@pytest.mark.parametrize("open_store", ["valkey", "sqlite", "postgres"], indirect=True)
async def test_replicas_share_carts_keys_and_generations_and_repeats_take_effect_once(open_store: OpenStore) -> None:
    async with open_store() as store, open_store() as other:
        additions = [Addition("ada", "pan", 1, f"k{number}") for number in range(50)]
        await asyncio.gather(*(replica.add(addition) for addition in additions for replica in (store, other)))
        await asyncio.gather(*(replica.add(Addition("ada", "pan", 1)) for _ in range(50) for replica in (store, other)))
        assert (await other.read("ada")).lines[0].quantity == 150
        purchase = Purchase("ada", (await other.read("ada")).etag, (Item("pan", 7),))
        calls = [
            call
            for _ in range(30)
            for replica in (store, other)
            for call in (replica.remove_ordered(purchase), replica.add(Addition("ada", "pan", 1)))
        ]
        await asyncio.gather(*calls)
        assert (await other.read("ada")).lines[0].quantity == 203
