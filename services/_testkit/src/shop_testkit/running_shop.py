"""A whole shop for tests: real processes, channels to them, and what they export."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc

from shop.address_pb2 import Address
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.empty_pb2 import Empty
from shop.order_pb2 import OrderResult
from shop.product_catalog_pb2 import Product
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.commands.order import card_info
from shop_cli.local.otlp_receiver import Received, exporting_to, receiving
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import discover_services

T = TypeVar("T")

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class RunningShop:
    """The processes, where they write, channels to them by name, and what they exported so far."""

    processes: Shop
    folder: Path
    channels: Mapping[str, grpc.aio.Channel]
    received: Received

    async def products(self) -> list[Product]:
        """The catalog."""
        return list((await ProductCatalogServiceStub(self.channels["product-catalog"]).ListProducts(Empty())).products)

    async def fill_cart(self, user_id: str, lines: int = 3) -> None:
        """Put so many products into a cart: one of the first, two of the second, and so on."""
        stub = CartServiceStub(self.channels["cart"])
        for quantity, product in enumerate((await self.products())[:lines], start=1):
            item = CartItem(product_id=product.id, quantity=quantity)
            await stub.AddItem(AddItemRequest(user_id=user_id, item=item))

    async def order(self, request: PlaceOrderRequest | None = None) -> OrderResult:
        """Fill the user's cart with three products and order it."""
        request = request or order_request()
        await self.fill_cart(request.user_id)
        return (await CheckoutServiceStub(self.channels["checkout"]).PlaceOrder(request)).order


async def until(condition: Callable[[], T | Awaitable[T]], timeout_seconds: float = 30) -> T:
    """Wait for what other processes do in their own time; returns the condition's first true value."""
    async with asyncio.timeout(timeout_seconds):
        while True:
            value = condition()
            if result := await value if isinstance(value, Awaitable) else value:
                return result
            await asyncio.sleep(_POLL_SECONDS)


def order_request(user_id: str = "", currency: str = "EUR") -> PlaceOrderRequest:
    """An order that nothing is wrong with, of a new user unless one is given."""
    user_id = user_id or f"user-{uuid.uuid4()}"
    return PlaceOrderRequest(
        user_id=user_id,
        user_currency=currency,
        email=f"{user_id}@example.com",
        address=Address(street_address="1 Harbour Street", city="Hamburg", country="Germany", zip_code=20095),
        credit_card=card_info(),
    )


@contextlib.asynccontextmanager
async def running_shop(folder: Path, **variables: str) -> AsyncIterator[RunningShop]:
    """All services on free ports, ready, with more environment variables for all of them, exporting to this process."""
    programs = discover_services()
    async with contextlib.AsyncExitStack() as stack:
        otlp_port, *ports = stack.enter_context(reserved(len(programs) + 1))
        by_name = dict(zip((program.name for program in programs), ports, strict=True))
        received = await stack.enter_async_context(receiving(otlp_port))
        environment = {"PATH": "/usr/bin:/bin", **exporting_to(otlp_port), **variables}
        processes = await stack.enter_async_context(Shop(programs, folder, by_name, environment))
        await processes.wait_until_serving(60)
        channels = {
            process.name: await stack.enter_async_context(grpc.aio.insecure_channel(process.address))
            for process in processes
        }
        yield RunningShop(processes, folder, channels, received)
