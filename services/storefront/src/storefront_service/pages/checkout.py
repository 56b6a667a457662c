"""Checkout: asks for an address, shows the total, asks for the card, and places the order."""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from chassis.errors import REFUSALS, DomainError, InvalidArgument
from chassis.values.countries import COUNTRY_NAMES
from chassis.values.fields import parse_idempotency_key
from chassis.values.money import Money, parse_amount
from chassis.values.orders import Item
from storefront_service import order_form
from storefront_service.domain import Receipt, session_label
from storefront_service.limits import LimitReached, OrderLimits
from storefront_service.pages.cart import MAX_QUANTITY, view_cart, view_receipt
from storefront_service.pages.frame import PERSONAL, Pages, or_none
from storefront_service.sessions import Session, new_key
from storefront_service.web.forms import read_form
from storefront_service.web.middleware import DELIVERY_COOKIE, read_cookie, session_of, set_cookie

log = structlog.get_logger()

_SEE_OTHER = 303
_MINUTE_SECONDS = 60
_INVALID, _DECLINED, _CONFLICT, _TOO_MANY, _UNAVAILABLE = 422, 402, 409, 429, 503
_ORDERED_BEFORE = "CART_ORDERED"
# Errors with these reasons mean that the order already exists, so redirect to its page, which shows the outcome.
_EXISTS = {
    "ORDER_IN_PROGRESS",
    "ORDER_IN_FLIGHT",
    "ORDER_NEEDS_REFUND",
    "ORDER_NEEDS_REVIEW",
    "ORDER_SETTLED",
    _ORDERED_BEFORE,
}
_OF_SESSION = "session"
_MAX_COOKIE = 3500  # browsers drop cookies larger than 4096 bytes


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason for showing the checkout form again.

    Attributes:
        order_id: the id of the declined order; empty if no order was created.
        problems: the text to show beside each invalid field, by field name.
        repeatable: whether the form may be sent again with the same key.
    """

    status: int
    title: str
    text: str
    order_id: str = ""
    problems: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    retry_after_seconds: int | None = None


@dataclass
class CheckoutPages(Pages):
    limits: OrderLimits

    def routes(self) -> list[Route]:
        return [
            Route("/checkout", self.form),
            Route("/checkout", self.submit, methods=["POST"]),
            Route("/orders", self.submit, methods=["POST"]),
        ]

    async def form(self, request: Request) -> Response:
        """Show the form, with the total if the visitor has already entered an address."""
        fields = dict(parse_qsl(read_cookie(request, DELIVERY_COOKIE)))
        if fields.pop(_OF_SESSION, "") != session_label(session_of(request).user_id):
            fields = {}  # ignore a cookie that belongs to another session
        try:
            receipt = await self._quote(request, fields) if fields else None
        except order_form.InvalidForm:
            receipt = None
        except DomainError as error:
            return await self._after(error, request, fields)
        return await self._form(request, fields, None, receipt)

    async def submit(self, request: Request) -> Response:
        """Place the order and redirect to its page. If the visitor hasn't seen the total, redirect to show it first."""
        fields, session = await read_form(request), session_of(request)
        total = _shown_total(request, fields)
        parse_idempotency_key(fields.get("key", ""), "key")
        try:
            form = order_form.parse(fields, with_card=total is not None)
            if total is None:
                await self._renew_session(session, fields["key"])
                return await self._lead_to_total(request, fields)
            address = request.client.host if request.client else ""
            with self.limits.order(session.first_id, address, form.email, form.card.number) as uncount:
                order_id, repeated = await self.clients.orders.place(session.user_id, total, form)
                if repeated:
                    uncount()
        except order_form.InvalidForm as error:
            return await self._form_again(request, fields, _invalid(error.problems))
        except DomainError as error:
            return await self._after(error, request, fields)
        return _order_page(request, order_id, repeated=repeated)

    async def _renew_session(self, session: Session, key: str) -> None:
        """Move the cart to a new id, so that an attacker who planted the earlier session cookie can't see the order.

        Keep the id if an earlier order may already include these items: under a new id, checkout would sell them again.
        """
        orders = await or_none(self.clients.orders.latest(session.user_id))
        if orders is None or any(order.holds_cart for order in orders):
            return
        user_id = session.next_id(key)
        for number, line in enumerate(await self.clients.carts.read(session.user_id)):
            added = Item(line.product_id, min(line.quantity, MAX_QUANTITY))
            # The release before uses this key for lines up to MAX_QUANTITY, so a form that both receive adds them once.
            await self.clients.carts.add(user_id, added, f"{user_id}-{number}-0")
            if added != line:
                await self.clients.carts.set_quantity(user_id, line)
        session.renew(user_id, has_orders=bool(orders))

    async def _lead_to_total(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Redirect to the form with the total, so that visitors can reload that page without sending the form again."""
        entered = {name: text for name, text in fields.items() if name in order_form.DELIVERY_FIELDS}
        cookie = urlencode({**entered, _OF_SESSION: session_label(session_of(request).user_id)})
        if len(cookie) > _MAX_COOKIE:
            return await self._form(request, fields, None, await self._quote(request, fields))
        response = RedirectResponse("/checkout", _SEE_OTHER)
        set_cookie(request, response, DELIVERY_COOKIE, cookie)
        return response

    async def _quote(self, request: Request, fields: Mapping[str, str]) -> Receipt:
        form, frame = order_form.parse(fields, with_card=False), await self.frame(request, ())
        return await self.clients.orders.quote(session_of(request).user_id, frame.currency, form)

    async def _after(self, error: DomainError, request: Request, fields: Mapping[str, str]) -> Response:
        order_id = error.metadata.get("order_id", "")
        log.info("order not placed", reason=error.reason, order_id=order_id)
        if order_id and error.reason in _EXISTS:
            return _order_page(request, order_id, repeated=error.reason == _ORDERED_BEFORE)
        if error.reason == "CART_EMPTY":
            return RedirectResponse("/cart", _SEE_OTHER)
        rejection = _later(error) if isinstance(error, LimitReached) else rejection_of(error)
        return await self._form_again(request, fields, rejection)

    async def _form_again(self, request: Request, fields: Mapping[str, str], rejection: Rejection) -> Response:
        """Show the form with the current total or, if the outcome is unknown, the total that the visitor accepted."""
        receipt = None
        if rejection.status != _UNAVAILABLE:
            with contextlib.suppress(order_form.InvalidForm, DomainError):
                receipt = await self._quote(request, fields)
        response = await self._form(request, fields, rejection, receipt)
        if rejection.retry_after_seconds is not None:
            response.headers["retry-after"] = str(rejection.retry_after_seconds)
        return response

    async def _form(
        self, request: Request, fields: Mapping[str, str], rejection: Rejection | None, receipt: Receipt | None
    ) -> Response:
        """Show the form. Card fields appear only together with a total."""
        lines, catalog = await asyncio.gather(self.cart_lines(request), self.catalog())
        frame = await self.frame(request, lines)
        cart = view_receipt(receipt, catalog) if receipt else await view_cart(self, catalog, lines, frame.currency)
        if not cart.orderable and rejection is None:
            return RedirectResponse("/cart", _SEE_OTHER)
        unknown = rejection is not None and rejection.status == _UNAVAILABLE
        return self.render(
            "checkout.html",
            frame,
            status=rejection.status if rejection else 200,
            cache=PERSONAL,
            cart=cart,
            shipping=receipt and receipt.shipping_cost,
            total=receipt.total if receipt else _shown_total(request, fields) if unknown else None,
            countries=COUNTRY_NAMES,
            key=(rejection and rejection.repeatable and fields.get("key")) or new_key(),
            values={name: value for name, value in fields.items() if name not in order_form.CARD_FIELDS},
            rejection=rejection,
            problems=rejection.problems if rejection else {},
        )


def _shown_total(request: Request, fields: Mapping[str, str]) -> Money | None:
    with contextlib.suppress(InvalidArgument):
        return parse_amount(fields.get("total", ""), "total") if request.url.path == "/orders" else None
    return None


def rejection_of(error: DomainError) -> Rejection:
    """Return the rejection that the form should show after this checkout error."""
    order_id = error.metadata.get("order_id", "")
    if error.reason == "IDEMPOTENCY_KEY_REUSED":
        text = "This form was already sent with other details. Look at your orders before you order again."
        return Rejection(_CONFLICT, "Check your orders", text)
    if any(found.field == "user_currency" for found in error.violations):
        text = "The shop no longer takes the currency you chose. Check the prices below, and enter your card again."
        return Rejection(_INVALID, "Your currency has changed", text, repeatable=True)
    if error.reason == "TOTAL_CHANGED":
        text = f"It is {error.metadata['total']} now, and nothing was ordered. Enter your card again to accept it."
        return Rejection(_CONFLICT, "The total has changed", text, repeatable=True)
    if error.violations:
        problems = {found.field.rpartition(".")[2]: f"{found.rule.capitalize()}." for found in error.violations}
        return _invalid(problems, order_id)
    if isinstance(error, REFUSALS):
        text = f"{error.message.capitalize()}. You were not charged."
        return Rejection(_DECLINED, "Your order was declined", text, order_id)
    text = (
        "Checkout does not respond. Send the form again in a moment: it is the same order, "
        "so you are charged at most once."
    )
    return Rejection(_UNAVAILABLE, "We can't confirm your order yet", text, order_id, repeatable=True)


def _later(error: LimitReached) -> Rejection:
    seconds = math.ceil(error.retry_after_seconds or 0)
    wait = "a minute" if seconds <= _MINUTE_SECONDS else f"{math.ceil(seconds / _MINUTE_SECONDS)} minutes"
    text = f"{error.message}. Nothing was ordered. Wait {wait}, then enter your card again and send the form."
    return Rejection(_TOO_MANY, "Too many attempts within an hour", text, repeatable=True, retry_after_seconds=seconds)


def _invalid(problems: Mapping[str, str], order_id: str = "") -> Rejection:
    text = "Nothing was ordered. Correct the marked fields, and enter your card again."
    return Rejection(_INVALID, "Some details need your attention", text, order_id, problems, repeatable=not order_id)


def _order_page(request: Request, order_id: str, *, repeated: bool = False) -> Response:
    response = RedirectResponse(f"/orders/{order_id}" + ("?repeated=1" if repeated else ""), _SEE_OTHER)
    set_cookie(request, response, DELIVERY_COOKIE, "")
    return response
