import re
from collections.abc import Callable

import pytest

from chassis.errors import Unavailable
from shop_kit.fake_peers import Fault
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


async def test_a_form_that_is_sent_twice_adds_once_and_its_key_nothing_else(visitor: Visitor) -> None:
    key = form_key(await visitor.page("/products/wool-blanket"))
    data = {"product_id": "wool-blanket", "quantity": "3", "key": key}
    for _ in range(2):
        await visitor.post("/cart/items", data=data)
    assert count_in_header(await visitor.page("/")) == 3
    assert (await visitor.post("/cart/items", data={**data, "quantity": "2"})).status_code == 400
    assert form_key(await visitor.page("/products/wool-blanket")) != key


async def test_the_header_counts_the_items_of_lines_that_can_be_changed_and_removed(visitor: Visitor) -> None:
    await visitor.add_to_cart("copper-kettle", 2)
    await visitor.add_to_cart("wool-blanket", 3)
    assert count_in_header(await visitor.page("/")) == 5
    for quantity in (6, 0):
        data = {"product_id": "copper-kettle", "quantity": str(quantity)}
        response = await visitor.post("/cart/quantity", data=data)
        assert (response.status_code, response.headers["location"]) == (303, "/cart")
        assert count_in_header(await visitor.page("/cart")) == quantity + 3


async def test_a_change_while_the_cart_is_down_says_that_nothing_is_lost(visitor: Visitor, backends: Backends) -> None:
    backends.cart.faults["SetQuantity"] = Fault(Unavailable("down"))
    response = await visitor.post("/cart/quantity", data={"product_id": "wool-blanket", "quantity": "1"})
    assert (response.status_code, "nothing in it is lost" in response.text) == (503, True)


async def test_the_cart_of_a_session_can_be_emptied_and_another_one_sees_nothing_of_it(
    shop: Storefront, visitor: Visitor
) -> None:
    await visitor.add_to_cart()
    async with shop.visitor() as other:
        assert "Nothing in it yet." in await other.page("/cart")
    assert (await visitor.post("/cart/empty", data={})).headers["location"] == "/cart"
    assert "Nothing in it yet." in await visitor.page("/cart")


@pytest.mark.parametrize(
    ("path", "least", "quantity"),
    [
        *(("/cart/items", 1, text) for text in ("", "0", "-1", "10001", "1.5", "²", "nine", "9" * 30, "\x00")),
        *(("/cart/quantity", 0, text) for text in ("", "-1", "10001", "x")),
    ],
)
async def test_a_quantity_that_is_no_number_up_to_10_000_is_rejected(
    visitor: Visitor, path: str, least: int, quantity: str
) -> None:
    response = await visitor.post(path, data={"product_id": "wool-blanket", "quantity": quantity, "key": "key-1"})
    assert response.status_code == 400
    assert f"Quantity: must be a number from {least} to 10,000" in response.text


@pytest.mark.parametrize(
    ("product", "key", "status"),
    [("submarine", "key-1", 404), *(("wool-blanket", key, 400) for key in ("", "with space", "x" * 256, "é"))],
)
async def test_an_unknown_product_and_a_malformed_key_are_rejected(
    visitor: Visitor, product: str, key: str, status: int
) -> None:
    response = await visitor.post("/cart/items", data={"product_id": product, "quantity": "1", "key": key})
    assert response.status_code == status


async def test_a_product_that_is_no_longer_sold_blocks_the_checkout_until_it_is_removed(
    visitor: Visitor, backends: Backends
) -> None:
    await visitor.add_to_cart()
    await backends.add_to_cart(visitor.user_id, "submarine")
    page = await visitor.page("/cart")
    assert ("no longer sold" in page, 'href="/checkout"' in page) == (True, False)
    await visitor.post("/cart/quantity", data={"product_id": "submarine", "quantity": "0"})
    assert 'href="/checkout"' in await visitor.page("/cart")


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
