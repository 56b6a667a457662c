"""gRPC clients of a shop under test."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc

from chassis.rpc.client import channel
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_internal.orders_pb2_grpc import OrderJournalStub
from shop_lab.world.shop_under_test import ShopUnderTest

_TIMEOUT_SECONDS = 5.0


class ShopClients:
    """Clients for simulated customers and for collecting evidence."""

    def __init__(self, shop: ShopUnderTest, stack: AsyncExitStack) -> None:
        def open_channel(name: str, service: str, *, internal: bool = False) -> grpc.aio.Channel:
            process = shop.processes[name]
            address = process.internal_address if internal else process.address
            # Customers reach the cart through the same network as checkout does.
            address = shop.links[name].address if name in shop.links and not internal else address
            opened = channel(address, service, timeout_seconds=_TIMEOUT_SECONDS)
            stack.push_async_callback(opened.close)
            return opened

        self.cart = CartServiceStub(open_channel("cart", "shop.CartService"))
        self.catalog = ProductCatalogServiceStub(open_channel("product-catalog", "shop.ProductCatalogService"))
        self.checkouts = [CheckoutServiceStub(open_channel(name, "shop.CheckoutService")) for name in shop.checkouts]
        channels = [open_channel(name, "shop.internal.OrderJournal", internal=True) for name in shop.checkouts]
        self.journals = [OrderJournalStub(opened) for opened in channels]
        # Tests of single faults inject them into the first checkout, so the journal is read through the last one.
        self.journal = self.journals[-1]


@asynccontextmanager
async def open_clients(shop: ShopUnderTest) -> AsyncIterator[ShopClients]:
    """Open clients, closed when the context is left."""
    async with AsyncExitStack() as stack:
        yield ShopClients(shop, stack)
