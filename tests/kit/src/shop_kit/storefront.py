"""The storefront in the test's process, which calls the servicers of the other services over a real channel."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2

from chassis.http.server import HttpService
from chassis.telemetry.instruments import Telemetry
from shop_kit.settings import load_settings
from shop_kit.storefront_backends import Backends
from storefront_service import __main__ as program
from storefront_service.__main__ import Settings, build
from storefront_service.pages import frame

KEY = "k" * 32
CARD = "4242424242424242"
SHOP = "http://shop.test"

# Compile the templates, which takes longer than most requests, once; wait for calls, which busy machines delay.
for shared in ("StaticFiles", "load_templates"):
    setattr(program, shared, cache(getattr(program, shared)))
program._READ_SECONDS = program._OPTIONAL_SECONDS = program._ORDER_SECONDS = frame._COUNT_SECONDS = 300.0


class UnexpectedPage(Exception):
    """A page is not what the visitor expects."""


class Visitor(httpx2.AsyncClient):
    """A browser: it has cookies and submits forms of pages."""

    @property
    def user_id(self) -> str:
        """The user id of the session, once something is in the cart."""
        return self.cookies["session"].partition(".")[0]

    async def page(self, path: str, status: int = 200) -> str:
        """Return a page of this status. Raise UnexpectedPage for any other."""
        response = await self.get(path)
        if response.status_code != status:
            raise UnexpectedPage(f"{path}: status {response.status_code}, not {status}: {response.text}")
        return response.text

    async def add_to_cart(self, product_id: str = "cast-iron-pan", quantity: int = 1) -> httpx2.Response:
        key = form_key(await self.page(f"/products/{product_id}"))
        return await self.post("/cart/items", data={"product_id": product_id, "quantity": str(quantity), "key": key})

    async def checkout_form(self, **changes: str) -> dict[str, str]:
        """Return a valid checkout form for the visitor's cart, with the key and the total of the page."""
        await self.post("/checkout", data=order_fields())
        page = await self.page("/checkout")
        return {**order_fields(form_key(page), shown_total(page)), **changes}

    async def order(self, **changes: str) -> httpx2.Response:
        """Order one pan."""
        await self.add_to_cart()
        return await self.post("/orders", data=await self.checkout_form(**changes))


def order_fields(key: str = "key-1", total: str = "55.00 USD") -> dict[str, str]:
    return {
        "key": key,
        "total": total,
        "email": "ada@example.com",
        "street_address": "1 Harbour Street",
        "city": "Hamburg",
        "state": "",
        "country": "Germany",
        "zip_code": "20095",
        "credit_card_number": CARD,
        "credit_card_cvv": "123",
        "credit_card_expiration_year": "2099",
        "credit_card_expiration_month": "12",
    }


def form_key(page: str) -> str:
    """Return the key of the form on a page. Raise UnexpectedPage if it has none."""
    return _hidden(page, "key")


def shown_total(page: str) -> str:
    """Return the total on the checkout form, such as `55.00 USD`. Raise UnexpectedPage if it shows none."""
    return _hidden(page, "total")


def _hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]+)"', page)
    if found is None:
        raise UnexpectedPage(f"no form with a {name}: {page}")
    return found[1]


@dataclass(frozen=True)
class Storefront:
    """A storefront and what it calls."""

    app: Any
    backends: Backends

    def visitor(self, address: str = "127.0.0.1") -> Visitor:
        """Return a browser without cookies at an address. The application's errors reach it as responses."""
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False, client=(address, 123))
        return Visitor(transport=transport, base_url=SHOP)


@asynccontextmanager
async def storefront(telemetry: Telemetry | None = None, **settings: object) -> AsyncIterator[Storefront]:
    """Serve the other services and build a storefront that calls them."""
    backends = Backends()
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(backends.serving())
        addresses = {name: address for name in Settings.__annotations__ if name.endswith("_addr")}
        parsed = load_settings(Settings, {**addresses, "session_key": KEY, **settings})
        service = HttpService(parsed, telemetry or Telemetry())
        app = await stack.enter_async_context(build(parsed, service))
        yield Storefront(service.wrap(app), backends)
