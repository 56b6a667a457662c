"""gRPC clients of a running shop, on this machine or behind a forwarded port."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import grpc

from chassis.client import channel
from chassis.errors import InvalidArgument, Unavailable
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.workspace import default_ports, discover, find, internal_name
from shop_internal.letter_spool_pb2_grpc import LetterSpoolStub
from shop_internal.orders_pb2_grpc import OrderJournalStub

# Placing an order takes as long as its slowest dependency; other calls take milliseconds.
TIMEOUT_SECONDS = 15.0

T = TypeVar("T")


def cart_client(address: str | None) -> AbstractAsyncContextManager[CartServiceStub]:
    return _client("cart", CartServiceStub, "shop.CartService", address)


def catalog_client(address: str | None) -> AbstractAsyncContextManager[ProductCatalogServiceStub]:
    return _client("product-catalog", ProductCatalogServiceStub, "shop.ProductCatalogService", address)


def currency_client(address: str | None) -> AbstractAsyncContextManager[CurrencyServiceStub]:
    return _client("currency", CurrencyServiceStub, "shop.CurrencyService", address)


def checkout_client(address: str | None) -> AbstractAsyncContextManager[CheckoutServiceStub]:
    return _client("checkout", CheckoutServiceStub, "shop.CheckoutService", address)


def journal_client(address: str | None) -> AbstractAsyncContextManager[OrderJournalStub]:
    return _client("checkout", OrderJournalStub, "shop.internal.OrderJournal", address)


def spool_client(address: str | None) -> AbstractAsyncContextManager[LetterSpoolStub]:
    return _client("email", LetterSpoolStub, "shop.internal.LetterSpool", address)


@asynccontextmanager
async def _client(
    name: str, stub: Callable[[grpc.aio.Channel], T], service: str, address: str | None
) -> AsyncIterator[T]:
    """Open a client of the gRPC service `service` that the program `name` serves.

    Without an address (`host:port`) the environment gives it, else it is the program's local port. Raise Unavailable
    with the reason NOTHING_LISTENS if no connection can be made.
    """
    target = _checked(address or default_address(name, internal=service.startswith("shop.internal.")))
    opened = channel(target, service, timeout_seconds=TIMEOUT_SECONDS)
    try:
        yield stub(opened)
    except Unavailable as error:
        if error.reason != "UNAVAILABLE":  # the service itself responded so, with a reason of its own
            raise
        message = f"{name} does not answer at {target}: is the shop up? (`shop up`)"
        raise Unavailable(message, reason="NOTHING_LISTENS") from error
    finally:
        await opened.close()


def default_address(name: str, *, internal: bool) -> str:
    """Return the address of a program's public or internal services: from the environment, else its local port."""
    programs = discover()
    program, ports = find(programs, name), default_ports(programs)
    if internal:
        return os.environ.get(program.internal_address_variable) or f"localhost:{ports[internal_name(name)]}"
    return os.environ.get(program.address_variable) or f"localhost:{ports[name]}"


def _checked(address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidArgument.field("address", "must be host:port")
    return address


def key_metadata(key: str | None) -> tuple[tuple[str, str], ...]:
    """Return the call metadata that carries an idempotency key."""
    return (("idempotency-key", key),) if key else ()
