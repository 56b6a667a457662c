"""Calls to a running shop, on this machine or behind a forwarded port."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

import grpc
import typer

from chassis.client import channel
from chassis.errors import InvalidArgument, Unavailable
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.workspace import discover, find
from shop_internal.orders_pb2_grpc import OrderJournalStub

# An order waits for its slowest peer; everything else answers in milliseconds.
TIMEOUT_SECONDS = 15.0

P = ParamSpec("P")
T = TypeVar("T")

Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Where the service listens; else <SERVICE>_ADDR, else its local port."),
]


User = Annotated[str, typer.Argument(help="The user who owns the cart.")]
Key = Annotated[
    str | None, typer.Option(help="Idempotency key: repeating a request with the same key has no further effect.")
]


class NothingListens(Unavailable):
    """No service answers at the address."""


def synchronous(command: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function as a plain one with the same parameters, as Typer wants its commands."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return asyncio.run(command(*args, **kwargs))

    return run


def cart_at(address: str | None) -> AbstractAsyncContextManager[CartServiceStub]:
    """The cart service."""
    return _peer("cart", CartServiceStub, "shop.CartService", address)


def catalog_at(address: str | None) -> AbstractAsyncContextManager[ProductCatalogServiceStub]:
    """The product catalog."""
    return _peer("product-catalog", ProductCatalogServiceStub, "shop.ProductCatalogService", address)


def currency_at(address: str | None) -> AbstractAsyncContextManager[CurrencyServiceStub]:
    """The currency service."""
    return _peer("currency", CurrencyServiceStub, "shop.CurrencyService", address)


def checkout_at(address: str | None) -> AbstractAsyncContextManager[CheckoutServiceStub]:
    """The checkout service."""
    return _peer("checkout", CheckoutServiceStub, "shop.CheckoutService", address)


def journal_at(address: str | None) -> AbstractAsyncContextManager[OrderJournalStub]:
    """The orders that checkout keeps."""
    return _peer("checkout", OrderJournalStub, "shop.internal.OrderJournal", address)


@asynccontextmanager
async def _peer(
    name: str, stub: Callable[[grpc.aio.Channel], T], service: str, address: str | None
) -> AsyncIterator[T]:
    """A stub of `service` as `name` serves it, at `host:port`, or where the environment says, or on its local port."""
    target = _checked(address or _default_address(name))
    opened = channel(target, service, timeout_seconds=TIMEOUT_SECONDS)
    try:
        yield stub(opened)
    except Unavailable as error:
        if error.reason != "UNAVAILABLE":  # the service's own words
            raise
        raise NothingListens(f"{name} does not answer at {target}: is the shop up? (`shop up`)") from error
    finally:
        await opened.close()


def _default_address(name: str) -> str:
    program = find(discover(), name)
    return os.environ.get(program.address_variable) or f"localhost:{program.port}"


def _checked(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidArgument.field("address", "must be host:port")
    return address


def key_metadata(key: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that carries an idempotency key."""
    return (("idempotency-key", key),) if key else ()
