import re

import pytest

from chassis.http.serving import PAGE_HEADERS
from shop_kit.storefront import Visitor

MAX_PAGE_BYTES = 60_000
PATHS = ["/", "/search", "/products/cast-iron-pan", "/cart", "/orders", "/nothing", "/static/shop.css"]
SECURITY = {
    "content-security-policy": PAGE_HEADERS["content-security-policy"],
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}


def test_no_policy_allows_inline_scripts() -> None:
    assert "unsafe" not in PAGE_HEADERS["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_response_has_security_headers_no_inline_script_and_is_light(visitor: Visitor, path: str) -> None:
    response = await visitor.get(path)
    assert SECURITY.items() <= dict(response.headers).items()
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", response.text)
    plain = {"accept-encoding": "identity"}
    parts = [await visitor.get(f"/static/{name}", headers=plain) for name in ("shop.css", "shop.js")]
    assert sum(len(part.content) for part in (response, *parts)) <= MAX_PAGE_BYTES


@pytest.mark.parametrize(
    ("path", "cache"),
    [("/", "private, no-cache"), *((path, "no-store") for path in ("/cart", "/checkout", "/orders", "/nothing"))],
)
async def test_pages_are_not_shared_and_personal_ones_not_stored(visitor: Visitor, path: str, cache: str) -> None:
    await visitor.add_to_cart()
    assert (await visitor.get(path)).headers["cache-control"] == cache


async def test_pictures_of_a_page_are_cached_for_a_year_and_those_of_another_version_not(visitor: Visitor) -> None:
    page = await visitor.page("/products/copper-kettle")
    (url,) = set(re.findall(r'src="(/static/products/copper-kettle[^"]+)"', page))
    response = await visitor.get(url)
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-type"] == "image/svg+xml"
    other = await visitor.get("/static/products/copper-kettle.svg?v=other")
    assert other.headers["cache-control"] == "public, max-age=300"
    etag = response.headers["etag"]
    for known in (etag, f'"x", W/{etag}', f'{etag[:-1]}-gzip"'):
        assert (await visitor.get(url, headers={"if-none-match": known})).status_code == 304


async def test_style_sheets_are_compressed_for_those_who_accept_it(visitor: Visitor) -> None:
    assert (await visitor.get("/static/shop.css")).headers["content-encoding"] == "gzip"
    for accepted in ("identity", "gzip;q=0, identity"):
        plain = await visitor.get("/static/shop.css", headers={"accept-encoding": accepted})
        assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("path", ["/", "/search", "/products/cast-iron-pan"])
async def test_every_picture_has_its_size_so_that_nothing_moves(visitor: Visitor, path: str) -> None:
    pictures = re.findall(r"<img [^>]+>", await visitor.page(path))
    assert [picture for picture in pictures if not re.search(r'width="\d+" height="\d+"', picture)] == []
