"""The checkout form, and placing the order."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chassis.errors import REFUSALS, DomainError, InvalidArgument
from chassis.values.fields import parse_idempotency_key
from chassis.values.money import is_currency_code
from storefront_service import order_form
from storefront_service.clients.cart import CartClient
from storefront_service.clients.orders import OrdersClient
from storefront_service.domain import BASE_CURRENCY
from storefront_service.pages.cart import view_cart
from storefront_service.pages.frame import CURRENCY_COOKIE, Pages, require
from storefront_service.sessions import new_key
from storefront_service.web.forms import read_form
from storefront_service.web.headers import PERSONAL

log = structlog.get_logger()

_SEE_OTHER = 303
_INVALID, _DECLINED, _CONFLICT, _UNAVAILABLE = 422, 402, 409, 503
# The order exists: its page shows how it ends.
_CONTINUES = frozenset({"ORDER_IN_PROGRESS", "ORDER_IN_FLIGHT", "ORDER_NEEDS_REVIEW", "ORDER_SETTLED"})
_ORDERED_BEFORE = "CART_ORDERED"
_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
_CART_EMPTY = "CART_EMPTY"


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason for which the form is shown again.

    Attributes:
        order_id: of an order that was declined; empty if none was begun.
        messages: shown beside the fields, by field.
        repeatable: whether the same form may be sent again, because its outcome is unknown or nothing was done.
    """

    status: int
    title: str
    text: str
    order_id: str = ""
    messages: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False


@dataclass(frozen=True)
class CheckoutPages:
    _pages: Pages
    _carts: CartClient
    _orders: OrdersClient

    def routes(self) -> list[Route]:
        return [Route("/checkout", self.form), Route("/orders", self.place, methods=["POST"])]

    async def form(self, request: Request) -> Response:
        return await self._form(request, {}, None)

    async def place(self, request: Request) -> Response:
        """Order the cart and lead to the order's page; a repeat of the form leads to the same one."""
        fields = await read_form(request)
        parse_idempotency_key(fields.get("key", ""))
        currency = fields.get("currency_code") or request.cookies.get(CURRENCY_COOKIE, BASE_CURRENCY)
        if not is_currency_code(currency):
            raise InvalidArgument.field("currency_code", "must be three capital letters")
        try:
            placed = await self._orders.place(self._pages.user_id(request), currency, order_form.parse(fields))
        except order_form.InvalidForm as error:
            return await self._form(request, fields, _invalid(error.messages))
        except DomainError as error:
            return await self._after(error, request, fields)
        return _order_page(placed.order_id, repeated=placed.repeated)

    async def _after(self, error: DomainError, request: Request, fields: Mapping[str, str]) -> Response:
        log.info("order not placed", reason=error.reason, order_id=error.metadata.get("order_id", ""))
        order_id = error.metadata.get("order_id", "")
        if order_id and error.reason in _CONTINUES:
            return _order_page(order_id)
        if order_id and error.reason == _ORDERED_BEFORE:
            return _order_page(order_id, repeated=True)
        if error.reason == _CART_EMPTY:
            return RedirectResponse("/cart", _SEE_OTHER)
        return await self._form(request, fields, rejection_of(error))

    async def _form(self, request: Request, fields: Mapping[str, str], rejection: Rejection | None) -> Response:
        user_id = self._pages.user_id(request)
        lines, catalog = await asyncio.gather(require("cart", self._carts.read(user_id)), self._pages.catalog())
        frame = await self._pages.frame(request, lines)
        cart = await view_cart(self._pages, catalog, lines, frame.currency)
        if not cart.orderable and rejection is None:
            return RedirectResponse("/cart", _SEE_OTHER)
        return self._pages.render(
            "checkout.html",
            frame,
            status=rejection.status if rejection else 200,
            cache=PERSONAL,
            cart=cart,
            key=fields["key"] if rejection and rejection.repeatable else new_key(),
            values={name: value for name, value in fields.items() if name not in order_form.CARD_FIELDS},
            rejection=rejection,
            messages=rejection.messages if rejection else {},
        )


def rejection_of(error: DomainError) -> Rejection:
    """Return what the form shows for an error of checkout."""
    order_id = error.metadata.get("order_id", "")
    if error.reason == _KEY_REUSED:
        text = "This form was already sent with other details. Look at your orders before you order again."
        return Rejection(_CONFLICT, "Check your orders", text)
    if isinstance(error, InvalidArgument) and any(found.field == "user_currency" for found in error.violations):
        text = "The shop no longer takes the currency you chose. Check the prices below, and enter your card again."
        return Rejection(_INVALID, "Your currency has changed", text, repeatable=True)
    if isinstance(error, InvalidArgument) and error.violations:
        messages = {found.field.rpartition(".")[2]: f"{found.rule.capitalize()}." for found in error.violations}
        return _invalid(messages, order_id)
    if isinstance(error, REFUSALS):
        text = f"{error.message.capitalize()}. You were not charged."
        return Rejection(_DECLINED, "Your order was declined", text, order_id)
    text = (
        "Checkout does not respond. Send the form again in a moment: it is the same order, "
        "so you are charged at most once."
    )
    return Rejection(_UNAVAILABLE, "We can't confirm your order yet", text, order_id, repeatable=True)


def _invalid(messages: Mapping[str, str], order_id: str = "") -> Rejection:
    text = "Nothing was ordered. Correct the marked fields, and enter your card again."
    return Rejection(_INVALID, "Some details need your attention", text, order_id, messages, repeatable=not order_id)


def _order_page(order_id: str, *, repeated: bool = False) -> Response:
    return RedirectResponse(f"/orders/{order_id}" + ("?repeated=1" if repeated else ""), _SEE_OTHER)
