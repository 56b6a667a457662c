"""Entry point of the storefront: `python -m storefront_service`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from chassis.errors import DomainError
from chassis.http.server import HttpService, HttpServiceSettings, run
from chassis.http.serving import PAGE_HEADERS, with_headers
from chassis.rpc import client
from chassis.settings import HmacKeySetting, PositiveInt, SecretStr, secret_url
from chassis.telemetry.instruments import Telemetry
from shop.ad_pb2_grpc import AdServiceStub
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from shop_internal.cart_lines_pb2_grpc import CartLinesStub
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub, OrderQuotesStub
from storefront_service.clients import Clients
from storefront_service.clients.cart import CartClient
from storefront_service.clients.catalog import CHECKS, CatalogClient
from storefront_service.clients.confirmations import ConfirmationsClient
from storefront_service.clients.currency import CurrencyClient
from storefront_service.clients.orders import OrdersClient
from storefront_service.clients.suggestions import SuggestionsClient
from storefront_service.clients.traces import TracesClient
from storefront_service.limits import LIMITS, OrderLimits
from storefront_service.pages.browsing import BrowsingPages
from storefront_service.pages.cart import CartPages
from storefront_service.pages.checkout import CheckoutPages
from storefront_service.pages.errors import ErrorPages
from storefront_service.pages.orders import OrderPages
from storefront_service.web.middleware import with_session
from storefront_service.web.static import StaticFiles
from storefront_service.web.templates import load_templates

_READ_SECONDS = 1.0
_OPTIONAL_SECONDS = 0.3  # timeout for optional calls, which fetch recommendations, ads and traces
_ORDER_SECONDS = 4.0  # if checkout takes longer, the order continues, and the order's page shows its progress


class Settings(HttpServiceSettings):
    product_catalog_addr: str
    currency_addr: str
    cart_addr: str
    cart_internal_addr: str
    recommendation_addr: str
    ad_addr: str
    checkout_addr: str
    checkout_internal_addr: str
    email_internal_addr: str
    # The key that signs session cookies. During a key rotation: the new key and the old key, separated by a comma.
    session_key: HmacKeySetting
    # How many orders, declined cards, different cards and confirmation e-mails to allow per hour.
    orders_per_session: PositiveInt = 10
    orders_per_network: PositiveInt = 600
    declines_per_session: PositiveInt = 5
    declines_per_network: PositiveInt = 60
    declines_without_network: PositiveInt = 20
    cards_per_session: PositiveInt = 5
    cards_per_network: PositiveInt = 200
    letters_per_recipient: PositiveInt = 10
    # Base URL of Jaeger's HTTP API v3, such as http://jaeger:16686; secret because the URL may contain a password.
    traces_url: Annotated[SecretStr, secret_url("http", "https")] | None = None


@asynccontextmanager
async def build(settings: Settings, service: HttpService) -> AsyncIterator[ASGIApp]:
    async with AsyncExitStack() as stack:
        clients = connect(settings, service.telemetry, stack)
        # Don't trace static files: a page loads a dozen pictures, and their spans would bury the page's own span.
        service.unobserved.append("/static/")
        yield create_app(settings, clients, service.telemetry)


def create_app(settings: Settings, clients: Clients, telemetry: Telemetry) -> ASGIApp:
    limits = OrderLimits({name: getattr(settings, name) for name in LIMITS}, telemetry)
    static = StaticFiles()
    templates = load_templates(static)
    errors = ErrorPages(templates, clients)
    routes = Starlette(
        routes=[
            *BrowsingPages(templates, clients).routes(),
            *CartPages(templates, clients).routes(),
            *CheckoutPages(templates, clients, limits).routes(),
            *OrderPages(templates, clients).routes(),
            Route("/static/{name:path}", static.serve),
        ],
        exception_handlers=dict.fromkeys((DomainError, HTTPException, Exception), errors.respond),
    )
    routes.router.redirect_slashes = False  # redirects would trust the Host header, and use http:// behind a TLS proxy
    # Wrap Starlette's own middleware too: it sends the page for unexpected errors, which needs a session and headers.
    shop = with_session(routes, settings.session_key, errors.forbidden)
    return with_headers(shop, PAGE_HEADERS)


def connect(settings: Settings, telemetry: Telemetry, stack: AsyncExitStack) -> Clients:
    """Open a channel to each service, and create clients that use the channels. `stack` closes all connections."""

    def channel(target: str, service: str, *retryable: str, timeout_seconds: float = _READ_SECONDS) -> grpc.aio.Channel:
        opened = client.channel_of(
            settings, telemetry, target, service, timeout_seconds=timeout_seconds, retryable=retryable, checks=CHECKS
        )
        stack.push_async_callback(opened.close)
        return opened

    catalog = channel(settings.product_catalog_addr, "shop.ProductCatalogService", "ListProducts", "SearchProducts")
    currency = channel(settings.currency_addr, "shop.CurrencyService", "GetSupportedCurrencies", "Convert")
    cart = channel(settings.cart_addr, "shop.CartService", "GetCart", "AddItem")
    cart_lines = channel(settings.cart_internal_addr, "shop.internal.CartLines", "SetQuantity")
    recommender = channel(settings.recommendation_addr, "shop.RecommendationService", timeout_seconds=_OPTIONAL_SECONDS)
    ad = channel(settings.ad_addr, "shop.AdService", timeout_seconds=_OPTIONAL_SECONDS)
    checkout = channel(settings.checkout_addr, "shop.CheckoutService", timeout_seconds=_ORDER_SECONDS)
    journal = channel(settings.checkout_internal_addr, "shop.internal.OrderJournal", "GetOrder", "ListOrders")
    quotes = channel(settings.checkout_internal_addr, "shop.internal.OrderQuotes", "QuoteOrder")
    mail_records = channel(settings.email_internal_addr, "shop.internal.MailRecords")
    url = settings.traces_url
    traces = TracesClient(url.get_secret_value(), timeout_seconds=_OPTIONAL_SECONDS) if url else None
    if traces:
        stack.push_async_callback(traces.aclose)
    return Clients(
        catalog=CatalogClient(ProductCatalogServiceStub(catalog), telemetry),
        currencies=CurrencyClient(CurrencyServiceStub(currency), telemetry),
        carts=CartClient(CartServiceStub(cart), CartLinesStub(cart_lines)),
        suggestions=SuggestionsClient(RecommendationServiceStub(recommender), AdServiceStub(ad)),
        orders=OrdersClient(CheckoutServiceStub(checkout), OrderQuotesStub(quotes), OrderJournalStub(journal)),
        confirmations=ConfirmationsClient(MailRecordsStub(mail_records)),
        traces=traces,
    )


if __name__ == "__main__":
    run("storefront", Settings, build)
