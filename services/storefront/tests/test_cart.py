import re
from collections.abc import Callable

import pytest

from chassis.errors import Unavailable
from shop_kit.storefront import Storefront, Visitor, form_key
from shop_kit.storefront_backends import Backends, Peer


def count_in_header(page: str) -> int:
    found = re.search(r'class="count">(\d+)', page)
    return int(found[1]) if found else 0


async def test_an_addition_leads_to_the_cart_which_shows_it(visitor: Visitor) -> None:
    response = await visitor.add_to_cart("copper-kettle", 2)
    assert (response.status_code, response.headers["location"]) == (303, "/cart?added=copper-kettle")
    page = await visitor.page("/cart?added=copper-kettle")
    assert "Copper kettle is in your cart." in page
    assert ("$248.00" in page, "$124.00 each" in page) == (True, True)


async def test_the_header_counts_the_items(visitor: Visitor) -> None:
    await visitor.add_to_cart("copper-kettle", 2)
    await visitor.add_to_cart("wool-blanket", 3)
    assert count_in_header(await visitor.page("/")) == 5


async def test_a_form_that_is_sent_twice_adds_once(visitor: Visitor) -> None:
    key = form_key(await visitor.page("/products/wool-blanket"))
    for _ in range(2):
        await visitor.post("/cart/items", data={"product_id": "wool-blanket", "quantity": "3", "key": key})
    assert count_in_header(await visitor.page("/")) == 3


async def test_each_product_page_has_another_key(visitor: Visitor) -> None:
    assert form_key(await visitor.page("/products/wool-blanket")) != form_key(
        await visitor.page("/products/wool-blanket")
    )


async def test_the_quantity_of_a_line_can_be_changed(visitor: Visitor) -> None:
    await visitor.add_to_cart("copper-kettle", 2)
    response = await visitor.post("/cart/quantity", data={"product_id": "copper-kettle", "quantity": "5"})
    assert (response.status_code, response.headers["location"]) == (303, "/cart")
    assert count_in_header(await visitor.page("/cart")) == 5


async def test_a_line_can_be_removed_and_the_others_remain(visitor: Visitor) -> None:
    await visitor.add_to_cart("copper-kettle", 2)
    await visitor.add_to_cart("wool-blanket", 3)
    await visitor.post("/cart/quantity", data={"product_id": "copper-kettle", "quantity": "0"})
    assert count_in_header(await visitor.page("/")) == 3


async def test_a_product_that_is_no_longer_sold_can_be_removed(visitor: Visitor, backends: Backends) -> None:
    await visitor.add_to_cart()
    await backends.add_to_cart(visitor.user_id, "submarine")
    await visitor.post("/cart/quantity", data={"product_id": "submarine", "quantity": "0"})
    assert 'href="/checkout"' in await visitor.page("/cart")


@pytest.mark.parametrize("quantity", ["", "-1", "10001", "x"])
async def test_a_new_quantity_that_is_no_number_from_0_to_10_000_is_rejected(visitor: Visitor, quantity: str) -> None:
    response = await visitor.post("/cart/quantity", data={"product_id": "wool-blanket", "quantity": quantity})
    assert "Quantity: must be a number from 0 to 10,000" in response.text


async def test_a_change_while_the_cart_is_down_says_that_nothing_is_lost(visitor: Visitor, backends: Backends) -> None:
    backends.cart_lines.fail(Unavailable("down"))
    response = await visitor.post("/cart/quantity", data={"product_id": "wool-blanket", "quantity": "1"})
    assert (response.status_code, "nothing in it is lost" in response.text) == (503, True)


async def test_the_cart_can_be_emptied(visitor: Visitor) -> None:
    await visitor.add_to_cart()
    assert (await visitor.post("/cart/empty", data={})).headers["location"] == "/cart"
    assert "Nothing in it yet." in await visitor.page("/cart")


async def test_another_session_has_another_cart(shop: Storefront, visitor: Visitor) -> None:
    await visitor.add_to_cart()
    async with shop.visitor() as other:
        assert "Nothing in it yet." in await other.page("/cart")


@pytest.mark.parametrize("quantity", ["", "0", "-1", "10001", "1.5", "²", "nine", "9" * 30, "\x00"])
async def test_a_quantity_that_is_no_number_from_1_to_10_000_is_rejected(visitor: Visitor, quantity: str) -> None:
    response = await visitor.post(
        "/cart/items", data={"product_id": "wool-blanket", "quantity": quantity, "key": "key-1"}
    )
    assert response.status_code == 400
    assert "Quantity: must be a number from 1 to 10,000" in response.text


async def test_an_unknown_product_is_not_added(visitor: Visitor) -> None:
    response = await visitor.post("/cart/items", data={"product_id": "submarine", "quantity": "1", "key": "key-1"})
    assert response.status_code == 404


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "é"])
async def test_a_malformed_key_is_rejected(visitor: Visitor, key: str) -> None:
    data = {"product_id": "wool-blanket", "quantity": "1", "key": key}
    assert (await visitor.post("/cart/items", data=data)).status_code == 400


async def test_a_key_that_was_used_for_something_else_is_rejected(visitor: Visitor) -> None:
    key = form_key(await visitor.page("/products/wool-blanket"))
    data = {"product_id": "wool-blanket", "quantity": "1", "key": key}
    await visitor.post("/cart/items", data=data)
    assert (await visitor.post("/cart/items", data={**data, "quantity": "2"})).status_code == 400


async def test_a_product_that_is_no_longer_sold_blocks_the_checkout_and_is_named(
    visitor: Visitor, backends: Backends
) -> None:
    await visitor.add_to_cart()
    await backends.add_to_cart(visitor.user_id, "submarine")
    page = await visitor.page("/cart")
    assert "no longer sold" in page
    assert 'href="/checkout"' not in page


@pytest.mark.parametrize("break_", [lambda cart: cart.fail(Unavailable("down")), lambda cart: cart.hang()])
async def test_a_cart_that_is_down_or_hangs_says_that_nothing_is_lost(
    visitor: Visitor, backends: Backends, break_: Callable[[Peer], None]
) -> None:
    break_(backends.cart)
    assert "nothing in it is lost" in await visitor.page("/cart", 503)


async def test_a_cart_of_200_lines_is_shown(visitor: Visitor, backends: Backends) -> None:
    await visitor.add_to_cart()
    for number in range(199):
        await backends.add_to_cart(visitor.user_id, f"product-{number}")
    assert (await visitor.page("/cart")).count("no longer sold") > 199


@pytest.mark.parametrize("code", ["", "XYZ", "eur", "EUR; Secure", "<script>"])
async def test_an_unknown_currency_is_rejected(visitor: Visitor, code: str) -> None:
    response = await visitor.post("/currency", data={"currency_code": code, "return_to": "/"})
    assert response.status_code == 400
    assert "Currency_code: is not a currency of this shop" in response.text


async def test_a_forged_currency_cookie_is_ignored(shop: Storefront) -> None:
    async with shop.visitor() as visitor:
        visitor.cookies.set("currency", "<script>")
        assert "<option selected>USD" in await visitor.page("/")
