"""Builds the ASGI application from its clients, for the process and for tests."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from chassis.errors import DomainError
from chassis.http.serving import with_headers
from storefront_service.clients import Clients
from storefront_service.limits import OrderLimits
from storefront_service.pages.browsing import BrowsingPages
from storefront_service.pages.cart import CartPages
from storefront_service.pages.checkout import CheckoutPages
from storefront_service.pages.errors import ErrorPages
from storefront_service.pages.frame import Pages, PartDown
from storefront_service.pages.orders import OrderPages
from storefront_service.sessions import SessionSigner
from storefront_service.web.headers import SECURITY_HEADERS
from storefront_service.web.middleware import ShopMiddleware
from storefront_service.web.static import StaticFiles
from storefront_service.web.templates import Templates


def create_app(clients: Clients, signer: SessionSigner, limits: OrderLimits, *, secure_cookie: bool) -> ASGIApp:
    """Create the application; with `secure_cookie`, browsers send the session's cookie over https only."""
    static = StaticFiles()
    pages = Pages(Templates(static), clients)
    errors = ErrorPages(pages)
    routes = Starlette(
        routes=[
            *BrowsingPages(pages, clients).routes(),
            *CartPages(pages, clients).routes(),
            *CheckoutPages(pages, clients, limits).routes(),
            *OrderPages(pages, clients).routes(),
            Route("/static/{name:path}", static.serve),
        ],
        exception_handlers=dict.fromkeys((DomainError, PartDown, HTTPException, Exception), errors.respond),
    )
    routes.router.redirect_slashes = False  # it would trust Host, and redirect from https to http behind a proxy
    # Outside Starlette's own middleware, so that the page for an unexpected error has a session and headers too.
    shop = ShopMiddleware(routes, signer, errors.forbidden, secure_cookie=secure_cookie)
    return with_headers(shop, SECURITY_HEADERS)
