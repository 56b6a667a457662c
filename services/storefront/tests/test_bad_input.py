import re

import pytest

from chassis.http.serving import PAGE_HEADERS
from chassis.values.fields import CONTROL
from shop_kit.storefront import SHOP, Storefront, Visitor

FORM = {"content-type": "application/x-www-form-urlencoded"}
POSTS = ("/cart/items", "/cart/quantity", "/cart/empty", "/currency", "/orders")
FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": f"{SHOP}.evil.example"},
    {"origin": "http://[::"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "origin": SHOP},
]
MALFORMED = [
    *((body, FORM["content-type"], 400) for body in (b"\xff\xfe", b"key=%ff", b"key=1&key=2")),
    (b"&".join(b"a%d=1" % n for n in range(99)), FORM["content-type"], 400),
    *((body, FORM["content-type"], 413) for body in (b"key=" + b"x" * 20_000, b"product_id=pan&quantity=1&" * 10_000)),
    *((b"--x--", content_type, 415) for content_type in ("multipart/form-data; boundary=x", "application/json", "")),
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("path", POSTS)
async def test_a_form_of_another_site_is_rejected(visitor: Visitor, path: str, headers: dict[str, str]) -> None:
    response = await visitor.post(path, data={"currency_code": "EUR"}, headers=headers)
    assert response.status_code == 403
    assert "This form came from another site" in response.text


# A proxy may drop the port that `Origin` has from `Host`.
@pytest.mark.parametrize("headers", [{"origin": SHOP}, {"sec-fetch-site": "same-origin", "origin": f"{SHOP}:8443"}, {}])
async def test_a_form_of_the_shop_is_accepted(visitor: Visitor, headers: dict[str, str]) -> None:
    response = await visitor.post("/cart/empty", data={}, headers={**FORM, **headers})
    assert response.status_code == 303


@pytest.mark.parametrize("path", ["/cart/items", "/currency", "/orders"])
@pytest.mark.parametrize(("body", "content_type", "status"), MALFORMED)
async def test_a_form_that_is_malformed_too_long_or_of_another_kind_is_rejected(
    visitor: Visitor, path: str, body: bytes, content_type: str, status: int
) -> None:
    response = await visitor.post(path, content=body, headers={"content-type": content_type})
    assert response.status_code == status
    assert ("Form: is malformed" in response.text) is (status == 400)


@pytest.mark.parametrize("path", ["/cart/items", "/checkout", "/orders"])
async def test_a_form_without_its_key_is_rejected_by_the_name_of_the_field(visitor: Visitor, path: str) -> None:
    response = await visitor.post(path, data={"product_id": "pan", "quantity": "1", "total": "1.00 USD"})
    assert response.status_code == 400
    assert "Key: must be 1 to 255" in response.text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
async def test_another_method_is_not_allowed(visitor: Visitor, method: str) -> None:
    assert (await visitor.request(method, "/cart")).status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/products/%00",
        "/products/%E2%80%AEabc",
        "/products/..%2F..%2Fetc%2Fpasswd",
        "/static/../domain.py",
        "/static/..%2fdomain.py",
        "/categories/%0d%0aset-cookie:%20x=1",
        "/orders/%00",
        "/orders/" + "x" * 300,
        "/orders/%F0%9F%98%80/events",
        "/" + "x" * 5000,
        "/search?q=%00%1f%7f",
    ],
)
async def test_an_odd_path_is_a_page_with_status_4xx(visitor: Visitor, path: str) -> None:
    response = await visitor.get(path)
    assert 400 <= response.status_code < 500
    assert "<h1>" in response.text
    assert not re.search(f"[{CONTROL}]", response.text)


@pytest.mark.parametrize("cookie", ["session=", "session=a.b", "session=" + "x" * 4000, 'session="\\"', "\xff=\xfe"])
async def test_an_odd_cookie_is_no_server_error(shop: Storefront, cookie: str) -> None:
    async with shop.visitor() as visitor:
        response = await visitor.get("/", headers=[(b"cookie", cookie.encode("latin-1"))])
    assert response.status_code == 200


async def test_an_unexpected_error_is_a_page_without_details_and_with_security_headers(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storefront_service.pages.browsing.new_key", lambda: 1 / 0)
    page = await visitor.page("/products/cast-iron-pan", 500)
    assert "Something went wrong on our side" in page
    assert "ZeroDivisionError" not in page
    response = await visitor.get("/products/cast-iron-pan")
    assert response.headers["content-security-policy"] == PAGE_HEADERS["content-security-policy"]
