"""The product catalog, asked rarely and remembered."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from chassis import calls
from chassis.errors import DomainError
from recommendation_service.domain import Catalog, CatalogUnavailable, Product
from shop import empty_pb2, product_catalog_pb2_grpc

log = structlog.get_logger()

RETRY_SECONDS = 1.0


async def fetch_catalog(stub: product_catalog_pb2_grpc.ProductCatalogServiceStub) -> Catalog:
    """Ask for all products. Raises the kinds of `chassis.errors` that the call ends with."""
    response = await stub.ListProducts(empty_pb2.Empty())
    return Catalog(Product(product.id, tuple(product.categories)) for product in response.products)


class RememberedCatalog:
    """A CatalogSource that answers from memory and asks anew in the background, one question at a time.

    Only the first answer is waited for. An old one is given for as long as the catalog does not answer.

    Args:
        fetch: asks the catalog.
        ttl_seconds: the age from which an answer is replaced, when somebody wants it.
        clock: monotonic seconds.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Catalog]], ttl_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._ttl_seconds = ttl_seconds
        self._clock = clock
        self._catalog: Catalog | None = None
        self._refresh_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None

    async def current(self) -> Catalog:
        """See CatalogSource."""
        if self._catalog is None:
            # The flight is everyone's: one caller who leaves does not end it for the others.
            await asyncio.shield(self._flight())
        elif self._clock() >= self._refresh_at:
            self._flight()
        if self._catalog is None:
            raise CatalogUnavailable
        return self._catalog

    async def aclose(self) -> None:
        """Stop asking."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _flight(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh catalog")
        return self._refreshing

    async def _refresh(self) -> None:
        calls.deadline.set(None)  # that of the call which happens to start this is not everyone's
        try:
            self._catalog = await self._fetch()
        except DomainError as error:
            self._refresh_at = self._clock() + RETRY_SECONDS
            log.warning("catalog not read", reason=error.reason, stale=self._catalog is not None)
        else:
            self._refresh_at = self._clock() + self._ttl_seconds
