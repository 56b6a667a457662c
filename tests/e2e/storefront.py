"""A visitor of the storefront: `python storefront.py URL COOKIES fill|cart|order`, with load_generator on the path.

`fill` puts a product into the cart, `cart` checks that it is there, and `order` orders it, sends the form again and
waits until the one order is done. COOKIES is the file in which the session is stored between two runs. Exits with
status 1 and a line that says why if a page is not as it should be.
"""

import secrets
import sys
import time
from http.cookiejar import DefaultCookiePolicy, LWPCookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

from load_generator.pages import Form, Page

TIMEOUT_SECONDS = 30
PRODUCT = "copper-kettle"
DETAILS = {
    "email": f"{secrets.token_hex(8)}@example.com",  # a mailbox gets a limited number of confirmations
    "street_address": "Kanalstr. 1",
    "city": "Berlin",
    "state": "",
    "country": "Germany",
    "zip_code": "10115",
    "credit_card_number": "4242 4242 4242 4242",
    "credit_card_cvv": "123",
    "credit_card_expiration_year": "2099",
    "credit_card_expiration_month": "12",
}


class Visitor:
    """Opens pages and posts forms as a browser does, in one session."""

    def __init__(self, url: str, cookies: Path) -> None:
        self._url = url.rstrip("/")
        # A forwarded port is http, whatever the public URL is.
        self._cookies = LWPCookieJar(str(cookies), policy=DefaultCookiePolicy(secure_protocols=("https", "http")))
        if cookies.exists():
            self._cookies.load(ignore_discard=True)
        self._opener = build_opener(HTTPCookieProcessor(self._cookies))

    def open(self, path: str, fields: dict[str, str] | None = None) -> Page:
        """Return the page at a path, or the one that follows a posted form. Exit unless its status is 200."""
        final, text = self._request(path, fields)
        return Page.read("POST" if fields else "GET", path, final, text)

    def text(self, path: str) -> str:
        """Return the HTML of a page. Exit like `open`."""
        return self._request(path, None)[1]

    def _request(self, path: str, fields: dict[str, str] | None) -> tuple[str, str]:
        body = urlencode(fields).encode() if fields is not None else None
        headers = {"Origin": self._url} if fields is not None else {}
        request = Request(self._url + path, data=body, headers=headers)  # noqa: S310 - the address is ours
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                text, final = response.read().decode(), urlsplit(response.url).path
        except HTTPError as error:
            sys.exit(f"{path} has status {error.code}")
        self._cookies.save(ignore_discard=True)
        return final, text

    def submit(self, form: Form, **fields: str) -> Page:
        return self.open(form.action, {**form.hidden, **fields})

    def form(self, path: str, action: str) -> Form:
        """Return the form of a page that is posted to `action`."""
        form = self.open(path).forms.get(action)
        return form or sys.exit(f"{path} has no form for {action}")


def fill(visitor: Visitor) -> None:
    """Put a product into the cart, on the way that a person takes."""
    expect(visitor.open("/").links("/products/"), "the first page shows no product")
    visitor.submit(visitor.form(f"/products/{PRODUCT}", "/cart/items"), quantity="1")
    print(f"{PRODUCT} is in the cart")  # noqa: T201


def check_cart(visitor: Visitor) -> None:
    """Require that the product is in the session's cart."""
    # A link to the product may be a recommendation.
    line = visitor.open("/cart").forms.get("/cart/quantity")
    expect(line is not None and line.hidden["product_id"] == PRODUCT, f"{PRODUCT} is not in the cart")
    print(f"{PRODUCT} is still in the cart")  # noqa: T201


def order(visitor: Visitor) -> None:
    """Order the cart and send the form again: both lead to the same order, which is done in the end."""
    form = visitor.submit(visitor.form("/checkout", "/checkout"), **DETAILS).forms.get("/orders")
    if form is None:
        sys.exit("the checkout form does not show the total")
    first, second = visitor.submit(form, **DETAILS), visitor.submit(form, **DETAILS)
    expect(first.order_id(), f"the order led to {first.path}")
    expect(first.order_id() == second.order_id(), "the same form led to two orders")
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while "<code>DONE</code>" not in visitor.text(first.path):
        expect(time.monotonic() < deadline, f"order {first.order_id()} is not done")
        time.sleep(0.5)
    print(f"order {first.order_id()} is done, and its form was sent twice")  # noqa: T201


def expect(condition: object, otherwise: str) -> None:
    if not condition:
        sys.exit(otherwise)


if __name__ == "__main__":
    url, file, action = sys.argv[1:]
    {"fill": fill, "cart": check_cart, "order": order}[action](Visitor(url, Path(file)))
