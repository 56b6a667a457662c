"""Fills carts, then orders each as fast as the shop answers: `python orders.py ORDERS LINES IN_FLIGHT`.

Beside this script is checkout's smoke module as `smoke_checkout.py`; addresses come from CART_ADDR, CHECKOUT_ADDR and
PRODUCT_CATALOG_ADDR. Prints `filled` when the carts are, waits for PAUSE_SECONDS, and prints a line of JSON at the end.
Exits with status 1 if an order failed.
"""

import asyncio
import json
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from typing import cast

import grpc

from chassis.errors import DomainError
from chassis.rpc.client import channel
from chassis.settings import Settings, load_one
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_smoke import SmokeCall

PAUSE_SECONDS = 20
_ADMITTED_WITHIN_SECONDS = 60
_TIMEOUT_SECONDS = 30


async def connect(variable: str, service: str) -> grpc.aio.Channel:
    """Return a channel as soon as its address can be reached: network policies take a moment to admit a new pod."""
    host, _, port = os.environ[variable].rpartition(":")
    async with asyncio.timeout(_ADMITTED_WITHIN_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, int(port))
            except OSError:
                await asyncio.sleep(1)
            else:
                writer.close()
                certificates = load_one(Settings, "tls_folder")
                return channel(
                    os.environ[variable], service, timeout_seconds=_TIMEOUT_SECONDS, certificates=certificates
                )


async def for_each(users: Iterable[str], work: Callable[[str], Awaitable[None]], in_flight: int) -> None:
    """Do the work for all users, for so many of them at once."""
    remaining = iter(users)

    async def worker() -> None:
        for user in remaining:
            await work(user)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def main(orders: int, lines: int, in_flight: int) -> int:
    """Print orders per second and the failures by kind; return 0 if there is none."""
    smoke_call: Callable[[str], SmokeCall] = import_module("smoke_checkout").smoke_call
    carts = CartServiceStub(await connect("CART_ADDR", "shop.CartService"))
    checkout = CheckoutServiceStub(await connect("CHECKOUT_ADDR", "shop.CheckoutService"))
    catalog = ProductCatalogServiceStub(await connect("PRODUCT_CATALOG_ADDR", "shop.ProductCatalogService"))
    products = (await catalog.ListProducts(Empty())).products[:lines]
    users = [uuid.uuid4().hex for _ in range(orders)]
    failed: Counter[str] = Counter()

    async def fill(user: str) -> None:
        for product in products:
            item = CartItem(product_id=product.id, quantity=2)
            await carts.AddItem(AddItemRequest(user_id=user, item=item))

    async def place(user: str) -> None:
        try:
            await checkout.PlaceOrder(cast("PlaceOrderRequest", smoke_call(user).request))
        except DomainError as error:
            failed[f"{type(error).__name__} {error}"] += 1

    await for_each(users, fill, in_flight)
    print("filled", flush=True)  # noqa: T201
    await asyncio.sleep(PAUSE_SECONDS)
    started = time.perf_counter()
    await for_each(users, place, in_flight)
    seconds = time.perf_counter() - started
    summary = {"orders": orders, "orders_a_second": round(orders / seconds, 1), "failed": dict(failed)}
    print(json.dumps(summary), flush=True)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*map(int, sys.argv[1:4]))))
