"""Orders in turns of seconds: a few of one shop, then a few of the next, whose ratio is one sample.

The speed of a shared machine changes within seconds by as much as what is compared differs.
"""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import cycle
from statistics import median, quantiles
from typing import Self

from chassis.rpc.connection import open_channel
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import root
from shop_cli.sample_order import sample_order
from shop_lab.bench.ghz import Result, ghz
from shop_lab.bench.shops import Running

METHOD, PROTO = "shop.CheckoutService.PlaceOrder", root() / "protos" / "shop" / "checkout.proto"
CPU, P50, RATE = "CPU ms", "p50 ms", "orders/s"
_CARTS_AT_ONCE = 8
# Confirmations and telemetry in the background are part of the cost of orders, filling carts is not.
_BACKGROUND_SECONDS = 0.7
# Shipping's quotes depend on the country and the quantity, and checkout caches them: orders have 24 combinations.
_COUNTRIES = ("Germany", "United States", "Canada", "Norway", "Japan", "Brazil", "India", "France")
_QUANTITIES = (1, 2, 3)
_KINDS = len(_COUNTRIES) * len(_QUANTITIES)


@dataclass(frozen=True)
class Shape:
    """How orders are placed: with so many lines each, so many of them in flight."""

    lines: int
    in_flight: int

    def __str__(self) -> str:
        return f"{self.lines} lines, " + ("alone" if self.in_flight == 1 else f"{self.in_flight} in flight")


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a figure over all turns."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(*(quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3))

    def __str__(self) -> str:
        low, middle, high = (f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in astuple(self))
        return f"{middle} ({low}-{high})"


Figures = dict[str, float]
Turn = Mapping[str, Figures]
"""The figures of each shop in one turn."""


def spreads(turns: Sequence[Turn], name: str, baseline: str | None) -> dict[str, Spread]:
    """Return the spread of each figure of a shop, and of each turn's ratios to the shop that is its baseline."""
    found = {figure: Spread.of([turn[name][figure] for turn in turns]) for figure in turns[0][name]}
    if baseline is not None:
        for figure in (CPU, P50):
            ratios = [turn[name][figure] / turn[baseline][figure] for turn in turns]
            found[f"{figure.split()[0]} ratio"] = Spread.of(ratios)
    return found


async def in_turns(shops: Mapping[str, Running], shape: Shape, number: int, seconds: float) -> list[Turn]:
    """Place orders for so many seconds in each shop, in so many turns, every other one in reverse order."""
    orders = {name: await _calibrate(running.shop, shape, seconds) for name, running in shops.items()}
    turns: list[Turn] = []
    for turn in range(number):
        names = list(shops)
        order = reversed(names) if turn % 2 else names
        turns.append({name: await _measure(shops[name], shape, orders[name]) for name in order})
    return turns


async def _calibrate(shop: Shop, shape: Shape, seconds: float) -> int:
    """Return how many orders take so long. It places each kind of order first: then prices and quotes are cached."""
    await _place(shop, await _prepare(shop, shape.lines, _KINDS), shape.in_flight)
    result = await _place(shop, await _prepare(shop, shape.lines, _KINDS), shape.in_flight)
    return max(_KINDS, round(result.calls_a_second * seconds))


async def _measure(running: Running, shape: Shape, orders: int) -> Figures:
    requests = await _prepare(running.shop, shape.lines, orders)
    await asyncio.sleep(_BACKGROUND_SECONDS / 2)
    before = running.cpu_seconds()
    result = await _place(running.shop, requests, shape.in_flight)
    await asyncio.sleep(_BACKGROUND_SECONDS)
    cpu = (running.cpu_seconds() - before) / orders * 1000
    counted = result.milliseconds[1:]  # the first one waits for a connection
    return {CPU: cpu, P50: median(counted), RATE: result.calls_a_second}


async def _place(shop: Shop, requests: Sequence[PlaceOrderRequest], in_flight: int) -> Result:
    return await ghz(shop["checkout"].address, METHOD, PROTO, requests, in_flight)


async def _prepare(shop: Shop, lines: int, orders: int) -> list[PlaceOrderRequest]:
    """Fill a cart for each of so many orders, and return the requests that place them."""
    users = [f"bench-{uuid.uuid4().hex}" for _ in range(orders)]
    async with (
        open_channel(shop["product-catalog"].address, None) as catalog,
        open_channel(shop["cart"].address, None) as cart,
    ):
        products = (await ProductCatalogServiceStub(catalog).ListProducts(Empty())).products[:lines]
        waiting, stub = iter(zip(users, cycle(_QUANTITIES), strict=False)), CartServiceStub(cart)

        async def fill() -> None:
            for user, quantity in waiting:
                for product in products:
                    item = CartItem(product_id=product.id, quantity=quantity)
                    await stub.AddItem(AddItemRequest(user_id=user, item=item))

        await asyncio.gather(*(fill() for _ in range(_CARTS_AT_ONCE)))
    requests = [sample_order(user, "bench@example.com") for user in users]
    for request, country in zip(requests, cycle(_COUNTRIES), strict=False):
        request.address.country = country
    return requests
