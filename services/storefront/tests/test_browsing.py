import re
from collections.abc import Callable
from typing import Any

import pytest

from chassis.errors import Unavailable
from shop_kit.storefront import SHOP, Visitor
from shop_kit.storefront_backends import Backends, Peer
from shop_kit.waiting import wait_until

DOWN = Unavailable("down")
OPTIONAL = {"recommendation": "/products/cast-iron-pan", "ad": "/", "cart": "/", "currency": "/"}


async def test_the_home_page_shows_products_of_many_categories_and_no_picture_twice(visitor: Visitor) -> None:
    page = await visitor.page("/")
    assert page.count('class="card"') == 12
    products, _, tiles = page.partition('id="by-category"')
    for part in (products, tiles):
        pictures = re.findall(r"/static/products/([a-z-]+)", part)
        assert len(pictures) == len(set(pictures)) == 15 + (part is tiles)
    shown = dict(re.findall(r'/categories/([a-z]+)"><img src="/static/products/([a-z-]+)', tiles))
    assert (shown["gifts"], shown["outdoors"], shown["summer"]) == ("gift-card", "two-person-tent", "round-sunglasses")


async def test_search_shows_the_best_match_first_and_all_products_without_a_word(visitor: Visitor) -> None:
    page = await visitor.page("/search?q=kettle")
    assert page.index("Copper kettle") < page.index("Kettlebell")
    assert (await visitor.page("/search")).count('class="card"') == 50
    page = await visitor.page("/categories/garden")
    assert ("Herb planter" in page, "Kettlebell" in page) == (True, False)


async def heading_of_recommendations(visitor: Visitor, path: str, wanted: str = "") -> str:
    """Return the heading, retrying while the page leaves out recommendations because their service is slow."""

    async def heading() -> str:
        page = await visitor.get(path, headers={"shop-version": wanted})
        return "".join(re.findall(r'<h2 id="recommended"(.*)</h2>', page.text))

    return await wait_until(heading)


@pytest.mark.parametrize(
    ("version", "shown"), [("v2", ' title="Chosen by recommendation v2"'), ("<script>", ""), ("v" * 17, ""), ("", "")]
)
async def test_the_version_that_recommends_other_products_is_on_the_page(
    visitor: Visitor, backends: Backends, version: str, shown: str
) -> None:
    backends.recommendation.trailers = (("recommendation-version", version),)
    assert await heading_of_recommendations(visitor, "/products/cast-iron-pan") == f"{shown}>Goes with this"


@pytest.mark.parametrize(("wanted", "sent"), [("v2", "v2"), ("V2", None), ("v" * 17, None), ("", None)])
@pytest.mark.parametrize("path", ["/products/cast-iron-pan", "/cart"])
async def test_the_header_of_a_tester_reaches_the_routes_of_the_recommendation(
    visitor: Visitor, backends: Backends, path: str, wanted: str, sent: str | None
) -> None:
    await heading_of_recommendations(visitor, path, wanted)
    assert backends.recommendation.metadata.get("shop-version") == sent


async def test_the_ad_on_a_product_page_leads_to_another_page(visitor: Visitor) -> None:
    page = await visitor.page("/products/wool-blanket")
    assert 'class="ad"' in page
    assert 'class="tag">Ad</span> <a href="/products/wool-blanket"' not in page


@pytest.mark.parametrize(
    ("path", "status", "target"),
    [
        ("/product/wool-blanket", 308, "/products/wool-blanket"),  # ads for other shops use this path
        ("/cart/", 307, "/cart"),
        ("/orders//", 307, "/orders"),
        ("//evil.example/", 307, "/evil.example"),
    ],
)
async def test_another_form_of_a_path_redirects_within_the_shop(
    visitor: Visitor, path: str, status: int, target: str
) -> None:
    response = await visitor.get(f"{SHOP}{path}", headers={"host": "evil.example"})
    assert (response.status_code, response.headers["location"]) == (status, target)


async def test_the_chosen_currency_applies_to_all_prices(visitor: Visitor) -> None:
    response = await visitor.post("/currency", data={"currency_code": "JPY", "return_to": "/search?q=pan"})
    assert response.headers["location"] == "/search?q=pan"
    page = await visitor.page("/products/cast-iron-pan")
    assert ("¥" in page, "$" in page) == (True, False)


@pytest.mark.parametrize("target", ["https://evil.test/", "//evil.test/", "/\\evil.test", "javascript:alert(1)"])
async def test_a_change_of_currency_never_leads_to_another_site(visitor: Visitor, target: str) -> None:
    response = await visitor.post("/currency", data={"currency_code": "EUR", "return_to": target})
    assert response.headers["location"] == "/"


@pytest.mark.parametrize("break_", [lambda peer: peer.fail(DOWN), Peer.hang], ids=["down", "hangs"])
@pytest.mark.parametrize("service", OPTIONAL)
async def test_a_page_is_shown_without_what_is_down_or_hangs(
    visitor: Visitor, backends: Backends, service: str, break_: Callable[[Peer], None]
) -> None:
    break_(getattr(backends, service))
    await visitor.page(OPTIONAL[service])


async def test_the_catalog_is_shown_from_memory_while_its_service_is_down(visitor: Visitor, backends: Backends) -> None:
    await visitor.page("/")
    backends.catalog.fail(DOWN)
    assert "Cast-iron pan" in await visitor.page("/products/cast-iron-pan")


@pytest.mark.parametrize("has_prices", [True, False])
@pytest.mark.parametrize("path", ["/", "/search?q=pan", "/categories/garden", "/products/cast-iron-pan"])
async def test_without_a_catalog_or_its_prices_a_page_says_what_still_works(
    visitor: Visitor, backends: Backends, path: str, has_prices: bool
) -> None:
    if has_prices:
        backends.catalog.fail(DOWN)
    else:
        backends.catalog.change = without_prices
    assert "Your orders can still be followed" in await visitor.page(path, 503)


def without_prices(response: Any) -> None:
    for product in (*getattr(response, "products", ()), *getattr(response, "results", ())):
        product.ClearField("price_usd")


async def test_without_a_conversion_prices_are_shown_in_dollars_and_the_page_says_so(
    visitor: Visitor, backends: Backends
) -> None:
    await visitor.post("/currency", data={"currency_code": "JPY", "return_to": "/"})
    backends.currency.fail(DOWN)
    page = await visitor.page("/products/cast-iron-pan")
    assert "$55.00" in page
    assert "conversion is unavailable" in page


@pytest.mark.parametrize("path", ["/products/submarine", "/categories/boats", "/nothing", "/static/nothing.svg"])
async def test_what_does_not_exist_is_a_page_with_status_404(visitor: Visitor, path: str) -> None:
    assert "There is nothing here" in await visitor.page(path, 404)


async def test_a_script_in_a_query_is_shown_as_text_and_a_long_query_is_rejected(visitor: Visitor) -> None:
    page = await visitor.page("/search?q=%3Cscript%3Ealert(1)%3C/script%3E")
    assert ("<script>alert" in page, "&lt;script&gt;alert" in page) == (False, True)
    assert "q: must have at most 256 characters" in (await visitor.page("/search?q=" + 300 * "x", 400)).lower()
