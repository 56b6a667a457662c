"""gRPC clients for a running shop, on this machine or behind a forwarded port."""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from chassis.errors import DeadlineExceeded, InvalidArgument, Unavailable
from chassis.rpc.client import channel
from chassis.settings import MAX_PORT
from chassis.tls.certificates import Certificates
from chassis.values.fields import parse_idempotency_key
from chassis.values.hosts import LOOPBACK
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2 import Product
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.child_process import NO_DATABASE
from shop_cli.local.run_file import find_run, run_folder
from shop_cli.local.workspace import address_variable, default_ports, discover, internal_name
from shop_internal.letter_spool_pb2_grpc import LetterSpoolStub
from shop_internal.mail_records_pb2_grpc import MailRecordsStub
from shop_internal.orders_pb2_grpc import OrderJournalStub

if TYPE_CHECKING:  # importing shop_cli.local.processes takes 100 ms, because it imports cryptography
    from shop_cli.local.processes import Process, Shop

# Long enough for PlaceOrder, which calls several other services. All other calls take milliseconds.
TIMEOUT_SECONDS = 15.0
_ADDRESS = re.compile(r"([^][\s/:@]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")

T = TypeVar("T")


@asynccontextmanager
async def _client(
    name: str, stub: Callable[[grpc.aio.Channel], T], service: str, at: "str | Process | None"
) -> AsyncIterator[T]:
    """Open a client for a gRPC service of the program `name`.

    `at` is `host:port` or a process; None means `default_address`. Replace gRPC's own errors with errors that tell the
    user what to do. The new errors' reasons are TLS_FAILED, NOT_READY, NOTHING_LISTENS and NO_RESPONSE.
    """
    is_internal = service.startswith("shop.internal.")
    if at is None or isinstance(at, str):
        target = at or default_address(name, internal=is_internal)
        parts = _ADDRESS.fullmatch(target)
        if parts is None or not 1 <= int(parts["port"]) <= MAX_PORT:
            given = "address" if at else address_variable(internal_name(name) if is_internal else name)
            raise InvalidArgument.field(given, "must be host:port")
        tls = tls_of(target, name)
    else:
        target, tls = at.internal_address if is_internal else at.address, {"certificates": at.certificates}
    opened = channel(target, service, timeout_seconds=TIMEOUT_SECONDS, **tls)
    try:
        yield stub(opened)
    except Unavailable as error:
        if error.reason != "UNAVAILABLE":  # the service itself raised this error, not gRPC
            raise
        if "TLS_FOLDER" in error.message:
            raise Unavailable(f"{name} at {target}: {error.message}", reason="TLS_FAILED") from error
        if "backend unhealthy" in error.message:
            message = f"{name} is {NO_DATABASE} (`shop status`), or another service listens at {target}"
            raise Unavailable(message, reason="NOT_READY") from error
        message = f"{name} does not answer at {target}: is it down or frozen? (`shop status`)"
        raise Unavailable(message, reason="NOTHING_LISTENS") from error
    except DeadlineExceeded as error:
        if error.reason != "DEADLINE_EXCEEDED":
            raise
        message = f"no response from {name} at {target} in time: is it or a service it calls frozen? (`shop status`)"
        raise DeadlineExceeded(message, reason="NO_RESPONSE") from error
    finally:
        await opened.close()


cart_client = partial(_client, "cart", CartServiceStub, "shop.CartService")
catalog_client = partial(_client, "product-catalog", ProductCatalogServiceStub, "shop.ProductCatalogService")
currency_client = partial(_client, "currency", CurrencyServiceStub, "shop.CurrencyService")
checkout_client = partial(_client, "checkout", CheckoutServiceStub, "shop.CheckoutService")
journal_client = partial(_client, "checkout", OrderJournalStub, "shop.internal.OrderJournal")
spool_client = partial(_client, "email", LetterSpoolStub, "shop.internal.LetterSpool")
mail_client = partial(_client, "email", MailRecordsStub, "shop.internal.MailRecords")


async def fill_cart(shop: "Shop", user_id: str, lines: int) -> list[Product]:
    """Add one product from each of the first `lines` categories, in quantities 1, 2, ..., and return the products."""
    async with catalog_client(shop["product-catalog"]) as catalog:
        listed = (await catalog.ListProducts(Empty())).products
    products = list({product.categories[0]: product for product in listed}.values())[:lines]
    async with cart_client(shop["cart"]) as cart:
        for quantity, product in enumerate(products, start=1):
            item = CartItem(product_id=product.id, quantity=quantity)
            await cart.AddItem(AddItemRequest(user_id=user_id, item=item))
    return products


def default_address(name: str, *, internal: bool) -> str:
    """Return the address of a program's public or internal services.

    Try the program's environment variable first, then the shop running in the current folder, then the default port.
    """
    key = internal_name(name) if internal else name
    if address := os.environ.get(address_variable(key)):
        return address
    if (run := find_run()) and key in run.addresses:
        return run.addresses[key]
    if run is None and (folder := run_folder()):
        message = f"the shop in {folder} was killed: start it again (`shop up`), or give --address"
        raise Unavailable(message, reason="NOTHING_LISTENS")
    return f"localhost:{default_ports(discover())[key]}"


def tls_of(address: str, name: str) -> dict[str, Any]:
    """Return the TLS options for a channel to a program; an empty dict means plaintext.

    Load certificates from $TLS_FOLDER or, if the address belongs to the running shop, from that shop's TLS folder.
    If $TLS_FOLDER is set, assume that a loopback address is a port forwarded from a cluster. The certificate must then
    contain the name of the program's Kubernetes Service instead of `localhost`.
    Raise InvalidArgument if $TLS_FOLDER does not contain valid certificates.
    """
    if folder := os.environ.get("TLS_FOLDER"):
        is_here = address.rpartition(":")[0] in LOOPBACK
        server_name = f"{os.environ.get('TLS_RELEASE') or 'shop'}-{name}" if is_here else ""
        try:
            return {"certificates": Certificates.load(folder), "server_name": server_name}
        except ValueError as error:
            raise InvalidArgument.field("TLS_FOLDER", f"{folder} {error}") from error
    run = find_run()
    is_own = run and run.tls_folder and address in run.addresses.values()
    return {"certificates": Certificates.load(run.tls_folder)} if run and is_own else {}


def key_metadata(key: str | None) -> tuple[tuple[str, str], ...]:
    """Return call metadata with the idempotency key, if there is one. Raise InvalidArgument if the key is invalid."""
    return (("idempotency-key", parse_idempotency_key(key)),) if key is not None else ()


async def is_replayed(call: grpc.aio.UnaryUnaryCall[Any, Any]) -> bool:
    """Return whether this PlaceOrder call returned an order that an earlier request had placed."""
    return ("order-replayed", "true") in tuple(await call.trailing_metadata() or ())
