from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.errors import DomainError, FailedPrecondition, InvalidArgument, NotFound
from storefront_service.pages.frame import PERSONAL, Pages

_STATUS: dict[type[DomainError], int] = {InvalidArgument: 400, NotFound: 404, FailedPrecondition: 409}
_TITLES = {
    400: "That request can't be used",
    403: "This form came from another site",
    404: "There is nothing here",
    405: "That is not possible here",
    409: "That is not possible right now",
    413: "That form is too long",
    415: "That is not a form of this shop",
    500: "Something went wrong on our side",
    503: "This part of the shop is taking a break",
}
_TEXTS = {
    403: "For your safety nothing was changed. Open the page in this shop and try again.",
    404: "The page may have moved, or the product is no longer sold.",
    500: "Try again in a moment.",
}
_STILL_WORKS = {
    "catalog": "Products can't be shown right now. Your orders can still be followed, and your cart is safe.",
    "cart": "Your cart can't be reached right now, and nothing in it is lost. Browsing and your orders still work.",
    "orders": "Orders can't be shown right now; those you placed continue. Browsing and your cart still work.",
    "email": "The e-mail can't be shown right now. Everything else works, and your order is not affected.",
    "currency": "The currency can't be changed right now. Everything else works.",
}


class ErrorPages(Pages):
    async def respond(self, request: Request, error: Exception) -> Response:
        match error:
            case HTTPException():  # also raised by Starlette, for example for unknown paths
                text = _STILL_WORKS.get(error.detail, _TEXTS.get(error.status_code, ""))
                response = await self._page(request, error.status_code, text)
                response.headers.update(error.headers or {})
            case DomainError():
                status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 503)
                # The error's message is safe to show: it names the field and the rule, but never quotes the value.
                described = f"{error.message[:1].upper()}{error.message[1:]}." if status in {400, 409} else ""
                response = await self._page(request, status, _TEXTS.get(status, described))
            case _:  # the chassis has already logged the error
                response = await self._page(request, 500, _TEXTS[500])
        return response

    async def forbidden(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a form that was submitted from another site."""
        response = await self._page(Request(scope), 403, _TEXTS[403])
        await response(scope, receive, send)

    async def _page(self, request: Request, status: int, text: str) -> Response:
        frame = await self.frame(request)
        title = _TITLES.get(status, HTTPStatus(status).phrase)
        return self.render("error.html", frame, status=status, cache=PERSONAL, title=title, text=text)
