"""The cart page, and the form that chooses a currency."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chassis.errors import DomainError, InvalidArgument
from chassis.values.fields import parse_idempotency_key
from chassis.values.money import Money, is_currency_code, total
from chassis.values.orders import Item
from storefront_service.domain import Catalog, Product, Receipt, is_local_path
from storefront_service.pages.frame import PERSONAL, Pages, found, require
from storefront_service.web.forms import read_form
from storefront_service.web.middleware import CURRENCY_COOKIE, session_of, set_cookie

MAX_QUANTITY = 10_000
_SEE_OTHER = 303
_YEAR_SECONDS = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class CartRow:
    """A line of a cart or order. `product` is None if no longer sold; in a cart, both prices are then None, too."""

    product_id: str
    quantity: int
    product: Product | None = None
    cost: Money | None = None
    unit_price: Money | None = None


@dataclass(frozen=True, slots=True)
class CartView:
    """A cart or order as pages show it. `total` excludes shipping and, in a cart, products that are no longer sold."""

    rows: tuple[CartRow, ...]
    total: Money

    @property
    def orderable(self) -> bool:
        return bool(self.rows) and all(row.product for row in self.rows)


async def view_cart(pages: Pages, catalog: Catalog, lines: Sequence[Item], currency: str) -> CartView:
    """Return a view of the cart with the prices that checkout would charge."""
    sold = [(line, product) for line in lines if (product := catalog.get(line.product_id))]
    costs = await pages.prices([product.price * line.quantity for line, product in sold], currency)
    prices = await pages.prices([product.price for _, product in sold], currency)
    rows = {line.product_id: CartRow(line.product_id, line.quantity) for line in lines}
    for (line, product), cost, price in zip(sold, costs, prices, strict=True):
        rows[line.product_id] = CartRow(line.product_id, line.quantity, product, cost, price)
    return CartView(tuple(rows.values()), total(costs[0].currency_code if costs else currency, costs))


def view_receipt(receipt: Receipt, catalog: Catalog) -> CartView:
    lines = receipt.lines
    rows = [CartRow(line.product_id, line.quantity, catalog.get(line.product_id), line.cost) for line in lines]
    return CartView(tuple(rows), total(receipt.shipping_cost.currency_code, [line.cost for line in lines]))


class CartPages(Pages):
    def routes(self) -> list[Route]:
        return [
            Route("/cart", self.cart),
            Route("/cart/items", self.add, methods=["POST"]),
            Route("/cart/quantity", self.set_quantity, methods=["POST"]),
            Route("/cart/empty", self.empty, methods=["POST"]),
            Route("/currency", self.choose_currency, methods=["POST"]),
        ]

    async def cart(self, request: Request) -> Response:
        lines, catalog = await asyncio.gather(self.cart_lines(request), self.catalog())
        frame, (recommended, version) = await asyncio.gather(
            self.frame(request, lines), self.recommended(request, [line.product_id for line in lines])
        )
        return self.render(
            "cart.html",
            frame,
            cache=PERSONAL,
            cart=await view_cart(self, catalog, lines, frame.currency),
            added=catalog.get(request.query_params.get("added", "")),
            recommended=await self.priced(catalog.known(recommended), frame.currency),
            version=version,
        )

    async def add(self, request: Request) -> Response:
        """Add a product to the cart, at most once per form key."""
        form = await read_form(request)
        key = parse_idempotency_key(form.get("key", ""), "key")
        quantity = _parse_quantity(form.get("quantity", ""))
        product = found((await self.catalog()).get(form.get("product_id", "")))
        line, session = Item(product.id, quantity), session_of(request)
        if not session.begun or await self._is_unused(session.user_id):
            session.begin()
        await require("cart", self.clients.carts.add(session.user_id, line, key))
        return RedirectResponse(f"/cart?added={product.id}", _SEE_OTHER)

    async def set_quantity(self, request: Request) -> Response:
        """Set a product's quantity in the cart, even if the product is no longer sold; 0 removes the product."""
        form = await read_form(request)
        line = Item(form.get("product_id", ""), _parse_quantity(form.get("quantity", ""), lowest=0))
        await require("cart", self.clients.carts.set_quantity(session_of(request).user_id, line))
        return RedirectResponse("/cart", _SEE_OTHER)

    async def empty(self, request: Request) -> Response:
        await require("cart", self.clients.carts.empty(session_of(request).user_id))
        return RedirectResponse("/cart", _SEE_OTHER)

    async def _is_unused(self, user_id: str) -> bool:
        """Return whether a session has no items and no orders. An attacker may have planted such a session's cookie."""
        try:
            return not await self.clients.carts.read(user_id) and not await self.clients.orders.latest(user_id)
        except DomainError:
            return False

    async def choose_currency(self, request: Request) -> Response:
        form = await read_form(request)
        code = form.get("currency_code", "")
        codes = await require("currency", self.clients.currencies.codes())
        if not is_currency_code(code) or code not in codes:
            raise InvalidArgument.field("currency_code", "is not a currency of this shop")
        back = form.get("return_to", "")
        response = RedirectResponse(back if is_local_path(back) else "/", _SEE_OTHER)
        set_cookie(request, response, CURRENCY_COOKIE, code, max_age=_YEAR_SECONDS)
        return response


def _parse_quantity(text: str, *, lowest: int = 1) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_QUANTITY))
    if not is_number or not lowest <= int(text) <= MAX_QUANTITY:
        raise InvalidArgument.field("quantity", f"must be a number from {lowest} to {MAX_QUANTITY:,}")
    return int(text)
