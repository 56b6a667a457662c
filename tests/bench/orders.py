"""End-to-end orders: latency one at a time, throughput with several in flight, CPU over all processes."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from itertools import cycle, islice
from statistics import median, quantiles

import grpc
from measure import cpu_seconds

from shop import (
    address_pb2,
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    checkout_pb2_grpc,
    empty_pb2,
    payment_pb2,
    product_catalog_pb2_grpc,
)
from shop_cli.local.processes import Shop

_CARD = payment_pb2.CreditCardInfo(
    credit_card_number="4242424242424242",
    credit_card_cvv=123,
    credit_card_expiration_year=2040,
    credit_card_expiration_month=1,
)
_ADDRESS = address_pb2.Address(
    street_address="1 Long Road", city="Bremen", state="HB", country="Germany", zip_code=28195
)


async def product_ids(shop: Shop) -> list[str]:
    async with grpc.aio.insecure_channel(shop["product-catalog"].address) as channel:
        listed = await product_catalog_pb2_grpc.ProductCatalogServiceStub(channel).ListProducts(empty_pb2.Empty())
    return [product.id for product in listed.products]


async def _fill(address: str, users: Sequence[str], product_ids: Sequence[str], lines: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)
        for user in users:
            await asyncio.gather(
                *(
                    stub.AddItem(
                        cart_pb2.AddItemRequest(user_id=user, item=cart_pb2.CartItem(product_id=product, quantity=2))
                    )
                    for product in islice(cycle(product_ids), lines)
                )
            )


async def _place(address: str, users: Sequence[str], in_flight: int) -> list[float]:
    """Place an order for each user; return the seconds that each took."""
    waiting = iter(users)
    seconds: list[float] = []

    async def client(stub: checkout_pb2_grpc.CheckoutServiceStub) -> None:
        for user in waiting:
            request = checkout_pb2.PlaceOrderRequest(
                user_id=user, user_currency="EUR", address=_ADDRESS, email="bench@example.com", credit_card=_CARD
            )
            started = time.perf_counter()
            await stub.PlaceOrder(request, timeout=30)
            seconds.append(time.perf_counter() - started)

    async with grpc.aio.insecure_channel(address) as channel:
        stub = checkout_pb2_grpc.CheckoutServiceStub(channel)
        await asyncio.gather(*(client(stub) for _ in range(in_flight)))
    return seconds


async def run(shop: Shop, product_ids: Sequence[str], *, lines: int, in_flight: int, orders: int) -> dict[str, float]:
    """Place orders and return their figures; carts are filled before the clock starts."""
    users = [uuid.uuid4().hex for _ in range(orders)]
    await _fill(shop["cart"].address, users, product_ids, lines)
    pids = [process.pid for process in shop if process.pid]
    cpu, started = cpu_seconds(pids), time.perf_counter()
    seconds = await _place(shop["checkout"].address, users, in_flight)
    elapsed = time.perf_counter() - started
    await asyncio.sleep(1)  # confirmations and telemetry in the background are part of the cost
    percentiles = quantiles(seconds, n=100)
    return {
        "orders_a_second": round(orders / elapsed),
        "p50_milliseconds": round(median(seconds) * 1000, 1),
        "p99_milliseconds": round(percentiles[98] * 1000, 1),
        "cpu_milliseconds": round((cpu_seconds(pids) - cpu) / orders * 1000, 2),
    }
