"""The cart, and the choice of currency."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chassis.errors import DomainError, InvalidArgument
from chassis.values.fields import parse_idempotency_key
from chassis.values.money import Money, is_currency_code, total
from storefront_service.clients import Clients
from storefront_service.domain import CartLine, Catalog, Product, Receipt, is_local_path
from storefront_service.pages.frame import CURRENCY_COOKIE, Pages, found, require
from storefront_service.web.forms import read_form
from storefront_service.web.headers import PERSONAL
from storefront_service.web.middleware import session_of

MAX_QUANTITY = 10_000
_SEE_OTHER = 303
_YEAR_SECONDS = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class CartRow:
    """A line of a cart or order; without product and, in a cart, without cost if the product is no longer sold."""

    product_id: str
    quantity: int
    product: Product | None
    cost: Money | None
    unit_price: Money | None = None


@dataclass(frozen=True, slots=True)
class CartView:
    """The cart as it is shown; `total` is the sum of the rows whose products are still sold."""

    rows: tuple[CartRow, ...]
    total: Money

    @property
    def orderable(self) -> bool:
        return bool(self.rows) and all(row.product for row in self.rows)


async def view_cart(pages: Pages, catalog: Catalog, lines: Sequence[CartLine], currency: str) -> CartView:
    """Return a cart with the costs that checkout would charge, without shipping."""
    sold = {product.id: product for product in catalog.known(line.product_id for line in lines)}
    known = [line for line in lines if line.product_id in sold]
    amounts = await pages.prices([sold[line.product_id].price * line.quantity for line in known], currency)
    prices = await pages.prices([sold[line.product_id].price for line in known], currency)
    costs = {line.product_id: pair for line, *pair in zip(known, amounts, prices, strict=True)}
    rows = [
        CartRow(line.product_id, line.quantity, sold.get(line.product_id), *costs.get(line.product_id, (None,)))
        for line in lines
    ]
    shown = amounts[0].currency_code if amounts else currency
    return CartView(tuple(rows), total(shown, amounts))


def view_receipt(receipt: Receipt, catalog: Catalog) -> CartView:
    """Return what an order has on its receipt, without shipping."""
    lines = receipt.lines
    rows = [CartRow(line.product_id, line.quantity, catalog.get(line.product_id), line.cost) for line in lines]
    return CartView(tuple(rows), total(receipt.shipping_cost.currency_code, [line.cost for line in lines]))


@dataclass(frozen=True)
class CartPages:
    _pages: Pages
    _clients: Clients

    def routes(self) -> list[Route]:
        return [
            Route("/cart", self.cart),
            Route("/cart/items", self.add, methods=["POST"]),
            Route("/cart/quantity", self.set_quantity, methods=["POST"]),
            Route("/cart/empty", self.empty, methods=["POST"]),
            Route("/currency", self.choose_currency, methods=["POST"]),
        ]

    async def cart(self, request: Request) -> Response:
        user_id = self._pages.user_id(request)
        lines, catalog = await asyncio.gather(require("cart", self._clients.carts.read(user_id)), self._pages.catalog())
        frame, recommended = await asyncio.gather(
            self._pages.frame(request, lines),
            self._clients.suggestions.recommended(
                user_id, [line.product_id for line in lines], request.headers.get("shop-version", "")
            ),
        )
        view = await view_cart(self._pages, catalog, lines, frame.currency)
        return self._pages.render(
            "cart.html",
            frame,
            cache=PERSONAL,
            cart=view,
            added=catalog.get(request.query_params.get("added", "")),
            recommended=await self._pages.priced(catalog.known(recommended.product_ids), frame.currency),
            version=recommended.version,
        )

    async def add(self, request: Request) -> Response:
        """Add a product, once per key of the form."""
        form = await read_form(request)
        key = parse_idempotency_key(form.get("key", ""), "key")
        quantity = _parse_quantity(form.get("quantity", ""))
        product = found((await self._pages.catalog()).get(form.get("product_id", "")))
        line, session = CartLine(product.id, quantity), session_of(request)
        if not session.begun or await self._is_unused(session.user_id):
            session.begin()
        await require("cart", self._clients.carts.add(session.user_id, line, key))
        return RedirectResponse(f"/cart?added={product.id}", _SEE_OTHER)

    async def set_quantity(self, request: Request) -> Response:
        """Set the quantity of a product in the cart, sold or not; 0 removes it."""
        form = await read_form(request)
        line = CartLine(form.get("product_id", ""), _parse_quantity(form.get("quantity", ""), lowest=0))
        await require("cart", self._clients.carts.set_quantity(self._pages.user_id(request), line))
        return RedirectResponse("/cart", _SEE_OTHER)

    async def empty(self, request: Request) -> Response:
        await require("cart", self._clients.carts.empty(self._pages.user_id(request)))
        return RedirectResponse("/cart", _SEE_OTHER)

    async def _is_unused(self, user_id: str) -> bool:
        """Return whether a session has neither items nor orders, so that somebody else may have left its cookie."""
        try:
            return not await self._clients.carts.read(user_id) and not await self._clients.orders.of_user(user_id)
        except DomainError:
            return False

    async def choose_currency(self, request: Request) -> Response:
        form = await read_form(request)
        code = form.get("currency_code", "")
        codes = await require("currency", self._clients.currencies.codes())
        if not is_currency_code(code) or code not in codes:
            raise InvalidArgument.field("currency_code", "is not a currency of this shop")
        back = form.get("return_to", "")
        response = RedirectResponse(back if is_local_path(back) else "/", _SEE_OTHER)
        response.set_cookie(CURRENCY_COOKIE, code, max_age=_YEAR_SECONDS, httponly=True, samesite="lax")
        return response


def _parse_quantity(text: str, *, lowest: int = 1) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_QUANTITY))
    if not is_number or not lowest <= int(text) <= MAX_QUANTITY:
        raise InvalidArgument.field("quantity", f"must be a number from {lowest} to {MAX_QUANTITY:,}")
    return int(text)
