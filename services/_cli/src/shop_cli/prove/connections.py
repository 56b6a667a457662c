"""Stubs for the services of a stage."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from chassis.client import channel
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.prove.stage import Stage
from shop_internal.orders_pb2_grpc import OrderJournalStub

_TIMEOUT_SECONDS = 5.0


class Connections:
    """What customers and the gathering of evidence need."""

    def __init__(self, stage: Stage, stack: AsyncExitStack) -> None:
        def opened(name: str, service: str) -> grpc.aio.Channel:
            made = channel(stage.shop[name].address, service, timeout_seconds=_TIMEOUT_SECONDS)
            stack.push_async_callback(made.close)
            return made

        self.cart = CartServiceStub(opened("cart", "shop.CartService"))
        self.catalog = ProductCatalogServiceStub(opened("product-catalog", "shop.ProductCatalogService"))
        self.checkouts = [CheckoutServiceStub(opened(name, "shop.CheckoutService")) for name in stage.checkouts]
        # Of the last one: tests of single faults harm the first.
        self.journal = OrderJournalStub(opened(stage.checkouts[-1], "shop.internal.OrderJournal"))


@asynccontextmanager
async def connected(stage: Stage) -> AsyncIterator[Connections]:
    """Connections that are closed with the context."""
    async with AsyncExitStack() as stack:
        yield Connections(stage, stack)
