"""The common part of all pages: visitor, currency and number of items in the cart; and how prices are shown."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse

from chassis.errors import REFUSALS, DomainError
from chassis.values.money import Money
from storefront_service.clients import Clients
from storefront_service.domain import BASE_CURRENCY, CartLine, Catalog, Product
from storefront_service.web.headers import PRIVATE
from storefront_service.web.middleware import session_of
from storefront_service.web.templates import Templates

log = structlog.get_logger()

CURRENCY_COOKIE, DELIVERY_COOKIE = "currency", "delivery"
_COUNT_SECONDS = 0.3

T = TypeVar("T")


class PartDown(Exception):
    """A page cannot be shown because a part of the shop is down: catalog, cart, currency, email or orders."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def found(value: T | None) -> T:
    """Return what a page is about. Raise HTTPException with status 404 if there is no such thing."""
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return value


async def require(part: str, call: Awaitable[T]) -> T:
    """Await a call that a page cannot do without. Raise PartDown, or the error if the service refused the request."""
    try:
        return await call
    except REFUSALS:
        raise
    except DomainError as error:
        log.warning("page unavailable", part=part, reason=error.reason)
        raise PartDown(part) from error


@dataclass(frozen=True, slots=True)
class Frame:
    """The common part of all pages.

    Attributes:
        cart_count: number of items in the cart; None if unknown.
        return_to: the path to which a change of currency redirects.
        categories: of the catalog; none while it is unavailable.
    """

    user_id: str
    currency: str
    currencies: tuple[str, ...]
    cart_count: int | None
    return_to: str
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PricedProduct:
    """A product with its price as the visitor sees it."""

    product: Product
    price: Money


@dataclass(frozen=True)
class Pages:
    """Shared by the pages of all features: loads the frame, shows prices and renders templates."""

    _templates: Templates
    _clients: Clients

    def user_id(self, request: Request) -> str:
        return session_of(request).user_id

    async def frame(self, request: Request, cart: Sequence[CartLine] | None = None) -> Frame:
        """Load the frame; parts that are slow or fail are left out. The cart is read unless it is given."""
        user_id = self.user_id(request)
        carts = self._clients.carts
        lines, codes, catalog = await asyncio.gather(
            _or_none(carts.read(user_id, timeout_seconds=_COUNT_SECONDS) if cart is None else asyncio.sleep(0, cart)),
            _or_none(self._clients.currencies.codes()),
            _or_none(self._clients.catalog.current()),
        )
        chosen = request.cookies.get(CURRENCY_COOKIE, BASE_CURRENCY)
        known = codes or (BASE_CURRENCY,)
        return Frame(
            user_id=user_id,
            currency=chosen if chosen in known else BASE_CURRENCY,
            currencies=known,
            cart_count=None if lines is None else sum(line.quantity for line in lines),
            return_to=_return_to(request),
            categories=catalog.categories if catalog else (),
        )

    async def catalog(self) -> Catalog:
        """Return the catalog. Raise PartDown."""
        return await require("catalog", self._clients.catalog.current())

    async def prices(self, amounts: Sequence[Money], currency: str) -> list[Money]:
        """Return amounts in a currency, or as they are while conversion is unavailable."""
        try:
            return await self._clients.currencies.convert(amounts, currency)
        except DomainError as error:
            log.info("page with prices of the catalog", reason=error.reason)
            return list(amounts)

    async def priced(self, products: Sequence[Product], currency: str) -> list[PricedProduct]:
        prices = await self.prices([product.price for product in products], currency)
        return [PricedProduct(product, price) for product, price in zip(products, prices, strict=True)]

    def render(
        self, template: str, frame: Frame, *, status: int = 200, cache: str = PRIVATE, **values: Any
    ) -> HTMLResponse:
        body = self._templates.render(template, {"frame": frame, **values})
        return HTMLResponse(body, status, headers={"cache-control": cache})

    def fragment(self, template: str, values: Mapping[str, Any]) -> str:
        return self._templates.render(template, values)


async def _or_none(call: Awaitable[T]) -> T | None:
    try:
        return await call
    except DomainError:
        return None


def _return_to(request: Request) -> str:
    """Return the page that the visitor sees; after a form was rejected, the one that the form was on."""
    if request.method == "POST":
        return "/cart" if request.url.path.startswith("/cart") else "/checkout"
    return quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
