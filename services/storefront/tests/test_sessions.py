import re
import time
from collections.abc import Callable

import pytest

from cart_service.domain import Addition
from chassis.errors import Unavailable
from chassis.values.keys import HmacKeys
from shop_internal.orders_pb2 import ORDER_STATE_CHARGING
from shop_kit.storefront import KEY, Storefront, Visitor, order_fields, storefront
from shop_kit.storefront_backends import Backends
from storefront_service.sessions import Session, open_session

OLD, NEW = "o" * 32, "n" * 32


def opened(cookie: str | None, keys: str = KEY) -> Session:
    return open_session(HmacKeys.parse(keys), cookie or "")


def begun(keys: str = KEY) -> Session:
    session = opened(None, keys)
    session.begin()
    return session


def test_a_cookie_opens_the_session_that_it_was_made_for_and_without_one_there_is_a_new_id() -> None:
    new = begun()
    again = opened(new.cookie)
    assert (again.user_id, again.begun, again.cookie) == (new.user_id, True, None)
    other = opened(None)
    assert (other.user_id != new.user_id, other.begun, other.cookie) == (True, False, None)


FORGERIES: list[Callable[[str], str]] = [
    str.swapcase,
    lambda cookie: cookie[1:],
    lambda cookie: "A" * 22 + cookie[22:],
    lambda cookie: cookie.replace(".", ".9", 1),  # a session that ends later
    lambda cookie: f"{cookie[:22]}.{cookie.rpartition('.')[2]}",
    lambda cookie: cookie.replace(".", ".\u0661", 1),
    lambda _: "\x00",
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_forged_cookie_opens_no_session(forge: Callable[[str], str]) -> None:
    new = begun()
    session = opened(forge(new.cookie or ""))
    assert (session.begun, session.user_id == new.user_id) == (False, False)


def test_a_session_ends_after_thirty_days(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie, now = begun().cookie, time.time()
    for passed, valid in ((-1e6, True), (30 * 24 * 3600 - 5, True), (30 * 24 * 3600 + 5, False)):
        monkeypatch.setattr(time, "time", lambda passed=passed: now + passed)
        assert opened(cookie).begun is valid


def test_a_cookie_of_an_old_key_is_replaced_by_one_of_the_new_key_and_of_a_removed_one_opens_nothing() -> None:
    old = begun(OLD)
    rotated = opened(old.cookie, f"{NEW},{OLD}")
    assert rotated.user_id == old.user_id
    again = opened(rotated.cookie, NEW)
    assert (again.user_id, again.cookie) == (old.user_id, None)
    assert not opened(old.cookie, NEW).begun


async def test_the_first_item_sets_a_cookie_that_is_hidden_from_scripts_and_other_sites(visitor: Visitor) -> None:
    for path in ("/", "/cart", "/orders", "/checkout", "/static/products/copper-kettle.svg"):
        assert "set-cookie" not in (await visitor.get(path)).headers
    cookie = (await visitor.add_to_cart()).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; "))
    assert "Secure" not in cookie


async def test_over_https_no_other_host_can_set_the_cookie() -> None:
    async with storefront(secure_cookie=True) as secure, secure.visitor() as visitor:
        cookie = (await visitor.add_to_cart()).headers["set-cookie"]
        assert cookie.startswith("__Host-session=")
        assert {"Path=/", "Secure", "HttpOnly"} <= set(cookie.split("; "))
        assert "domain" not in cookie.lower()
        for path, name in (("/checkout", "__Secure-delivery"), ("/currency", "__Host-currency")):
            response = await visitor.post(path, data={**order_fields(), "currency_code": "EUR"})
            assert re.search(f"{name}=[^,]*; secure", response.headers["set-cookie"], re.IGNORECASE)
            assert response.headers["strict-transport-security"] == "max-age=31536000"
        planted = {"cookie": f"session={cookie.partition(';')[0].partition('=')[2]}"}
        assert "/cart/empty" not in (await visitor.get("/cart", headers=planted)).text
        assert "/cart/empty" in (await visitor.get("/cart", headers={"cookie": cookie.partition(";")[0]})).text


async def test_two_replicas_with_one_key_share_sessions() -> None:
    async with storefront() as one, storefront() as other, one.visitor() as visitor, other.visitor() as moved:
        await visitor.add_to_cart()
        moved.cookies.set("session", visitor.cookies["session"])
        await other.backends.add_to_cart(visitor.user_id, "copper-kettle")
        assert "Copper kettle" in await moved.page("/cart")


async def planted(shop: Storefront, attacker: Visitor) -> Visitor:
    """Return a visitor with the session cookie of an attacker, who has filled and emptied the cart."""
    await attacker.add_to_cart()
    await attacker.post("/cart/empty", data={})
    victim = shop.visitor()
    victim.cookies.set("session", attacker.cookies["session"])
    return victim


async def test_a_planted_session_is_not_the_one_that_a_cart_begins(shop: Storefront, visitor: Visitor) -> None:
    async with await planted(shop, visitor) as victim:
        response = await victim.order()
        assert response.status_code == 303
        assert (await visitor.get(response.headers["location"])).status_code == 404
        assert "Nothing in it yet" in await visitor.page("/cart")


async def test_a_used_session_that_was_planted_shows_no_order_from_after(shop: Storefront, visitor: Visitor) -> None:
    await visitor.order()
    await visitor.add_to_cart("copper-kettle")
    async with shop.visitor() as victim:
        victim.cookies.set("session", visitor.cookies["session"])
        locations = [(await victim.order()).headers["location"] for _ in range(9)]
        assert {(await visitor.get(location)).status_code for location in locations} == {404}
        assert locations[-1] not in await visitor.page("/orders")
        assert [location in await victim.page("/orders") for location in locations] == [False] + [True] * 8


async def test_an_address_moves_the_whole_cart(visitor: Visitor, backends: Backends) -> None:
    for quantity in (10_000, 10_000, 2345):
        await visitor.add_to_cart(quantity=quantity)
    await visitor.add_to_cart("copper-kettle")
    before = visitor.user_id
    backends.cart.calls.clear()
    responses = [await visitor.post("/checkout", data=order_fields()) for _ in range(2)]
    assert backends.cart.calls["AddItem"] == 4  # one a line, however many there are of it
    assert {response.status_code for response in responses} == {303}
    assert visitor.user_id != before
    assert (await backends.carts.read(visitor.user_id)).lines == (await backends.carts.read(before)).lines
    of_the_release_before = Addition(visitor.user_id, "copper-kettle", 1, f"{visitor.user_id}-1-0")
    assert not await backends.carts.add(of_the_release_before)


async def test_an_order_that_holds_the_cart_keeps_its_id(visitor: Visitor, backends: Backends) -> None:
    backends.checkout.state = ORDER_STATE_CHARGING
    await visitor.order()
    user_id = visitor.user_id
    await visitor.checkout_form()
    assert visitor.user_id == user_id


async def test_a_session_with_orders_is_not_lost_with_its_next_cart_of_two_tabs(visitor: Visitor) -> None:
    location = (await visitor.order()).headers["location"]
    await visitor.post("/cart/empty", data={})
    await visitor.page("/products/copper-kettle")
    await visitor.add_to_cart("cast-iron-pan")
    await visitor.add_to_cart("copper-kettle")
    cart = await visitor.page("/cart")
    assert ("Cast-iron pan" in cart, "Copper kettle" in cart) == (True, True)
    await visitor.page(location)


async def test_a_session_remains_if_it_is_unknown_whether_it_has_orders(visitor: Visitor, backends: Backends) -> None:
    await visitor.add_to_cart()
    user_id = visitor.user_id
    await visitor.post("/cart/empty", data={})
    backends.checkout_peer.fail(Unavailable("down"))
    await visitor.add_to_cart()
    assert visitor.user_id == user_id


@pytest.mark.parametrize("carts_are_down", [False, True])
async def test_a_forgotten_browser_sees_neither_cart_nor_orders_nor_address(
    visitor: Visitor, backends: Backends, carts_are_down: bool
) -> None:
    location = (await visitor.order()).headers["location"]
    await visitor.add_to_cart()
    await visitor.post("/checkout", data=order_fields())
    user_id = visitor.user_id
    assert "Forget me on this browser" in await visitor.page("/orders")
    if carts_are_down:
        backends.cart.fail(Unavailable("down"))
    response = await visitor.post("/forget", data={})
    assert (response.status_code, response.headers["location"]) == (303, "/orders")
    assert dict(visitor.cookies) == {}
    assert "Forget me" not in await visitor.page("/orders")
    for path in ("", "/email", "/email/content", "/events"):
        assert (await visitor.get(location + path)).status_code == 404
    assert bool((await backends.carts.read(user_id)).lines) is carts_are_down


async def test_an_address_that_somebody_else_left_is_not_shown(shop: Storefront, visitor: Visitor) -> None:
    await visitor.add_to_cart()
    await visitor.post("/checkout", data=order_fields())
    async with shop.visitor() as victim:
        await victim.add_to_cart()
        victim.cookies.set("delivery", visitor.cookies["delivery"])
        assert "Harbour" not in await victim.page("/checkout")
