"""The base class of all pages, and the frame around every page."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import structlog
from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from chassis.errors import REFUSALS, DomainError
from chassis.values.money import Money
from chassis.values.orders import Item
from storefront_service.clients import Clients
from storefront_service.domain import BASE_CURRENCY, Catalog, Product
from storefront_service.web.middleware import CURRENCY_COOKIE, read_cookie, session_of

log = structlog.get_logger()

# Cache-Control values: PERSONAL for pages with addresses, orders or card fields, _PRIVATE for all other pages.
PERSONAL, _PRIVATE = "no-store", "private, no-cache"
_COUNT_SECONDS = 0.3

T = TypeVar("T")


def found(value: T | None) -> T:
    """Return the value. Raise HTTPException with status 404 if it is None."""
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return value


async def require(part: str, call: Awaitable[T]) -> T:
    """Await a call that the page needs. If the service fails, raise HTTPException with status 503 and the part's name.

    The service's refusals propagate. The parts are catalog, cart, currency, email and orders.
    """
    try:
        return await call
    except REFUSALS:
        raise
    except DomainError as error:
        log.warning("page unavailable", part=part, reason=error.reason)
        raise HTTPException(503, part, {"retry-after": "5"}) from error


@dataclass(frozen=True, slots=True)
class Frame:
    """The header that all pages show.

    Attributes:
        cart_count: the number of items in the cart; None if unknown.
        return_to: the path to redirect to after the visitor changes the currency.
        categories: the names of all categories; empty while the catalog is unavailable.
    """

    currency: str
    currencies: tuple[str, ...]
    cart_count: int | None
    return_to: str
    categories: tuple[str, ...]


@dataclass
class Pages:
    """The base class of all pages: loads the frame, converts prices and renders templates."""

    templates: Environment
    clients: Clients

    async def frame(self, request: Request, cart: Sequence[Item] | None = None) -> Frame:
        """Load the frame, leaving out parts that are slow or fail. Read the cart only if `cart` is None."""
        user_id, carts = session_of(request).user_id, self.clients.carts
        lines, codes, catalog = await asyncio.gather(
            or_none(carts.read(user_id, timeout_seconds=_COUNT_SECONDS) if cart is None else asyncio.sleep(0, cart)),
            or_none(self.clients.currencies.codes()),
            or_none(self.clients.catalog.current()),
        )
        chosen = read_cookie(request, CURRENCY_COOKIE)
        known = codes or (BASE_CURRENCY,)
        return Frame(
            currency=chosen if chosen in known else BASE_CURRENCY,
            currencies=known,
            cart_count=None if lines is None else sum(line.quantity for line in lines),
            return_to=_return_to(request),
            categories=tuple(catalog.by_category) if catalog else (),
        )

    async def catalog(self) -> Catalog:
        """Return the catalog. Raise HTTPException if it is unavailable."""
        return await require("catalog", self.clients.catalog.current())

    async def cart_lines(self, request: Request) -> tuple[Item, ...]:
        """Return the lines of the visitor's cart. Raise HTTPException if the cart is unavailable."""
        return await require("cart", self.clients.carts.read(session_of(request).user_id))

    async def prices(self, amounts: Sequence[Money], currency: str) -> list[Money]:
        """Convert amounts to a currency. Return them unconverted while the currency service is unavailable."""
        try:
            return await self.clients.currencies.convert(amounts, currency)
        except DomainError as error:
            log.info("page with unconverted prices", reason=error.reason)
            return list(amounts)

    async def recommended(self, request: Request, product_ids: Sequence[str]) -> tuple[Sequence[str], str]:
        """Recommend products that go with the given ones. The request's `shop-version` header selects a version."""
        user_id, version = session_of(request).user_id, request.headers.get("shop-version", "")
        return await self.clients.suggestions.recommended(user_id, product_ids, version)

    async def priced(self, products: Sequence[Product], currency: str) -> list[Product]:
        """Return the products with their prices converted to a currency."""
        prices = await self.prices([product.price for product in products], currency)
        return [replace(product, price=price) for product, price in zip(products, prices, strict=True)]

    def render(
        self, template: str, frame: Frame, *, status: int = 200, cache: str = _PRIVATE, **values: Any
    ) -> HTMLResponse:
        body = self.templates.get_template(template).render(values, frame=frame)
        return HTMLResponse(body, status, headers={"cache-control": cache})


async def or_none(call: Awaitable[T]) -> T | None:
    try:
        return await call
    except DomainError:
        return None


def _return_to(request: Request) -> str:
    """Return the path of the current page or, after a rejected form, of the page that contains the form."""
    if request.method == "POST":
        return "/cart" if request.url.path.startswith("/cart") else "/checkout"
    return quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
