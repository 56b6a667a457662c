"""A small shop with the storefront's URLs and forms, in memory, which a test can make slow or wrong."""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from shop_kit.http_serving import serve_http
from shop_kit.waiting import wait_until

PRODUCTS = ("kettle", "mug", "lamp")
CARD_FIELDS = {"number", "cvv", "expiration_year", "expiration_month"}
ADDRESS_FIELDS = {"key", "email", "street_address", "city", "state", "country", "zip_code"}
ORDER_FIELDS = ADDRESS_FIELDS | {"total"} | {f"credit_card_{name}" for name in CARD_FIELDS}


@dataclass
class FakeStorefront:
    """The state of the shop, and what its customers did."""

    url: str = ""
    arrived: list[float] = field(default_factory=list)
    paths: Counter[str] = field(default_factory=Counter)
    headers: list[dict[str, str]] = field(default_factory=list)
    carts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    orders: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    stalled_until: float = 0.0
    forgets_keys: bool = False
    broken: str | None = None
    ids: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def placed(self) -> int:
        """How many orders were placed."""
        return sum(len(orders) for orders in self.orders.values())

    def app(self) -> ASGIApp:
        """Return the shop as an ASGI application."""
        routes = [
            Route("/", self._home),
            Route("/search", self._home),
            Route("/categories/{name}", self._home),
            Route("/products/{id}", self._product),
            Route("/cart", self._cart),
            Route("/cart/items", self._add, methods=["POST"]),
            Route("/cart/empty", self._empty, methods=["POST"]),
            Route("/currency", self._currency, methods=["POST"]),
            Route("/checkout", self._checkout),
            Route("/checkout", self._total, methods=["POST"]),
            Route("/orders", self._order, methods=["POST"]),
            Route("/orders", self._orders),
            Route("/orders/{id}", self._order_page),
        ]
        inner = Starlette(routes=routes)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.arrived.append(time.monotonic())
                self.paths[f"{scope['method']} {scope['path']}"] += 1
                self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
                await wait_until(lambda: time.monotonic() >= self.stalled_until)
            await inner(scope, receive, send)

        return app

    def _page(self, request: Request, body: str) -> Response:
        if self.broken == request.url.path:
            return HTMLResponse("broken", status_code=503)
        response = HTMLResponse(
            '<form method="post" action="/currency">'
            f'<input type="hidden" name="return_to" value="{request.url.path}"></form>{body}'
        )
        if "session" not in request.cookies:
            # Secure, as behind a proxy that ends TLS, which these customers pass by.
            response.set_cookie("session", f"user-{next(self.ids)}", httponly=True, secure=True, samesite="lax")
        return response

    async def _home(self, request: Request) -> Response:
        links = "".join(f'<a class="card" href="/products/{product}">{product}</a>' for product in PRODUCTS)
        return self._page(request, f'<a href="/categories/kitchen">Kitchen</a>{links}')

    async def _product(self, request: Request) -> Response:
        product = request.path_params["id"]
        return self._page(
            request,
            '<form method="post" action="/cart/items"><input type="number" name="quantity" value="1">'
            f'<input type="hidden" name="product_id" value="{product}">'
            f'<input type="hidden" name="key" value="add-{next(self.ids)}"></form>',
        )

    async def _cart(self, request: Request) -> Response:
        cart = self.carts[request.cookies.get("session", "")]
        form = '<form method="post" action="/cart/empty"></form>' if cart else "empty"
        return self._page(request, form + "".join(f"<p>{product}</p>" for product in cart))

    async def _add(self, request: Request) -> Response:
        form = await _form(request, {"product_id", "quantity", "key"})
        self.carts[request.cookies["session"]].append(form["product_id"])
        return RedirectResponse("/cart", status_code=303)

    async def _empty(self, request: Request) -> Response:
        self.carts[request.cookies["session"]].clear()
        return RedirectResponse("/cart", status_code=303)

    async def _currency(self, request: Request) -> Response:
        form = await _form(request, {"currency_code", "return_to"})
        return RedirectResponse(form["return_to"], status_code=303)

    async def _checkout(self, request: Request) -> Response:
        return self._checkout_form(request, "/checkout")

    async def _total(self, request: Request) -> Response:
        await _form(request, ADDRESS_FIELDS)
        return self._checkout_form(request, "/orders", '<input type="hidden" name="total" value="9.00 EUR">')

    def _checkout_form(self, request: Request, action: str, total: str = "") -> Response:
        key = f'<input type="hidden" name="key" value="order-{next(self.ids)}">'
        form = f'<form method="post" action="{action}">{key}{total}<input name="email" value=""></form>'
        return self._page(request, form)

    async def _order(self, request: Request) -> Response:
        form = await _form(request, ORDER_FIELDS)
        user, key = request.cookies["session"], form["key"]
        if self.forgets_keys:
            key = f"{key}-{next(self.ids)}"
        order_id = self.orders[user].setdefault(key, f"id-{next(self.ids)}")
        return RedirectResponse(f"/orders/{order_id}", status_code=303)

    async def _orders(self, request: Request) -> Response:
        ids = self.orders[request.cookies["session"]].values()
        return self._page(request, "".join(f'<a href="/orders/{order_id}">{order_id}</a>' for order_id in ids))

    async def _order_page(self, request: Request) -> Response:
        order_id = request.path_params["id"]
        if order_id not in self.orders[request.cookies["session"]].values():
            return HTMLResponse("not found", status_code=404)
        return self._page(request, f'<h1>Order {order_id}</h1><a href="/orders/{order_id}/email">e-mail</a>')


async def _form(request: Request, expected: set[str]) -> dict[str, str]:
    """Return the fields of a form. Respond with 422 if they are not the expected ones."""
    fields = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
    if set(fields) != expected:
        raise HTTPException(422)
    return fields


@asynccontextmanager
async def serving(shop: FakeStorefront) -> AsyncIterator[FakeStorefront]:
    """Serve a shop on a free port."""
    async with serve_http(shop.app()) as shop.url:
        yield shop
