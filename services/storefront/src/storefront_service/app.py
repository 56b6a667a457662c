"""Builds the ASGI application."""

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
from storefront_service.pages.frame import PartDown
from storefront_service.pages.orders import OrderPages
from storefront_service.sessions import SessionSigner
from storefront_service.web.headers import SECURITY_HEADERS
from storefront_service.web.middleware import ShopMiddleware
from storefront_service.web.static import StaticFiles
from storefront_service.web.templates import Templates


def create_app(clients: Clients, signer: SessionSigner, limits: OrderLimits, *, secure_cookie: bool) -> ASGIApp:
    """Create the application; with `secure_cookie`, browsers send the session cookie over https only."""
    static = StaticFiles()
    templates = Templates(static)
    errors = ErrorPages(templates, clients)
    routes = Starlette(
        routes=[
            *BrowsingPages(templates, clients).routes(),
            *CartPages(templates, clients).routes(),
            *CheckoutPages(templates, clients, limits).routes(),
            *OrderPages(templates, clients).routes(),
            Route("/static/{name:path}", static.serve),
        ],
        exception_handlers=dict.fromkeys((DomainError, PartDown, HTTPException, Exception), errors.respond),
    )
    routes.router.redirect_slashes = False  # a redirect would trust Host, and leave https behind a proxy
    # Outside Starlette's own middleware, so the page for an unexpected error has a session and headers too.
    shop = ShopMiddleware(routes, signer, errors.forbidden, secure_cookie=secure_cookie)
    return with_headers(shop, SECURITY_HEADERS)
