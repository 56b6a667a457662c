import pytest

from chassis.values.keys import HmacKeys
from shop_lab.world.storefront import KEY, Storefront, storefront
from storefront_service.sessions import SessionSigner

OLD, NEW = "o" * 32, "n" * 32


def signer(keys: str = KEY) -> SessionSigner:
    return SessionSigner(HmacKeys.parse(keys))


def test_a_cookie_opens_the_session_that_it_was_made_for() -> None:
    new = signer().open(None)
    again = signer().open(new.cookie)
    assert (again.user_id, again.cookie) == (new.user_id, None)


def test_two_new_sessions_have_different_users() -> None:
    assert signer().open(None).user_id != signer().open(None).user_id


@pytest.mark.parametrize("forge", [str.swapcase, lambda c: c[1:], lambda c: "A" * 22 + c[22:], lambda _: "\x00"])
def test_a_forged_cookie_opens_a_new_session(forge: "object") -> None:
    cookie = signer().open(None).cookie
    assert cookie is not None
    assert callable(forge)
    forged = forge(cookie)
    session = signer().open(forged)
    assert session.user_id != forged.partition(".")[0]
    assert session.cookie is not None


def test_a_cookie_of_an_old_key_is_replaced_by_one_of_the_new_key() -> None:
    old = signer(OLD).open(None)
    rotated = signer(f"{NEW},{OLD}").open(old.cookie)
    assert rotated.user_id == old.user_id
    assert signer(NEW).open(rotated.cookie) == signer(NEW).open(rotated.cookie)
    assert signer(NEW).open(rotated.cookie).user_id == old.user_id


def test_a_cookie_of_a_removed_key_opens_a_new_session() -> None:
    old = signer(OLD).open(None)
    assert signer(NEW).open(old.cookie).user_id != old.user_id


async def test_the_cookie_is_hidden_from_scripts_and_other_sites(shop: Storefront) -> None:
    async with shop.visitor() as visitor:
        cookie = (await visitor.get("/")).headers["set-cookie"]
    assert "HttpOnly; SameSite=Lax" in cookie
    assert "Secure" not in cookie


async def test_the_cookie_is_sent_over_https_only_where_that_is_configured() -> None:
    async with storefront(secure_cookie=True) as secure, secure.visitor() as visitor:
        assert "; Secure" in (await visitor.get("/")).headers["set-cookie"]


async def test_two_replicas_with_one_key_share_sessions() -> None:
    async with storefront() as one, storefront() as other, one.visitor() as visitor, other.visitor() as moved:
        await visitor.get("/")
        moved.cookies.set("session", visitor.cookies["session"])
        assert "set-cookie" not in (await moved.get("/")).headers


async def test_pictures_set_no_cookie(shop: Storefront) -> None:
    async with shop.visitor() as visitor:
        assert "set-cookie" not in (await visitor.get("/static/products/copper-kettle.svg")).headers
