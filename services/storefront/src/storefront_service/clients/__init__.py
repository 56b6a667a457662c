"""Clients for the services that pages call, and for the trace store."""

from dataclasses import dataclass

from storefront_service.clients.cart import CartClient
from storefront_service.clients.catalog import CatalogClient
from storefront_service.clients.confirmations import ConfirmationsClient
from storefront_service.clients.currency import CurrencyClient
from storefront_service.clients.orders import OrdersClient
from storefront_service.clients.suggestions import SuggestionsClient
from storefront_service.clients.traces import TracesClient


@dataclass(frozen=True)
class Clients:
    catalog: CatalogClient
    currencies: CurrencyClient
    carts: CartClient
    suggestions: SuggestionsClient
    orders: OrdersClient
    confirmations: ConfirmationsClient
    traces: TracesClient | None  # None if no trace store is configured
