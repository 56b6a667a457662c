"""Orders from a compiled client: latency one at a time, throughput with several in flight, CPU over all servers."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from statistics import median, quantiles

from chassis.rpc.connection import open_channel
from shop import cart_pb2, cart_pb2_grpc, checkout_pb2, empty_pb2, product_catalog_pb2_grpc
from shop_cli.local.processes import Shop
from shop_cli.local.workspace import root
from shop_cli.sample_order import sample_order
from shop_lab.bench import clients, rounds
from shop_lab.bench.rounds import Figures, Row, Rows
from shop_lab.bench.shops import Running

METHOD = "shop.CheckoutService.PlaceOrder"
PROTO = root() / "protos" / "shop" / "checkout.proto"
CPU, P50, P99 = "cpu_milliseconds", "p50_milliseconds", "p99_milliseconds"
_CARTS_AT_ONCE = 8
# Confirmations and telemetry in the background are part of the cost of orders, filling carts is not.
_BACKGROUND_SECONDS = 1.0
_TURNS = 4
# After which the outbox of a shop is empty, so that the next one is alone.
_SETTLED_SECONDS = 0.3
# Shipping's quotes depend on the country and the quantity, and checkout caches them: orders have 24 combinations.
_COUNTRIES = ("Germany", "United States", "Canada", "Norway", "Japan", "Brazil", "India", "France")
_QUANTITIES = (1, 2, 3)


@dataclass(frozen=True)
class Shape:
    """How orders are placed: so many, with so many lines each, so many of them in flight."""

    lines: int
    in_flight: int
    orders: int

    def __str__(self) -> str:
        return f"{self.lines} lines, " + ("alone" if self.in_flight == 1 else f"{self.in_flight} in flight")


async def compare(
    shops: Mapping[str, Running], baselines: Mapping[str, str], shapes: Sequence[Shape], number_of_rounds: int
) -> Rows:
    """Return the figures of each shop and shape.

    Args:
        shops: by name.
        baselines: the name of the shop with which another is compared, by the other's name.
        shapes: of the orders.
        number_of_rounds: for each shape.
    """
    for running in shops.values():
        await run(running, Shape(9, 16, 200))
    rows: Rows = {}
    for shape in shapes:
        if shape.in_flight == 1:
            made = await rounds.in_turns(partial(run_in_turns, shops, shape), number_of_rounds)
        else:
            measurements = {name: partial(run, running, shape) for name, running in shops.items()}
            made = await rounds.interleaved(measurements, number_of_rounds)
        for name, figures in made.items():
            ratios = _ratios(figures, made[baselines[name]]) if name in baselines else {}
            rows[f"{shape}: {name}"] = rounds.row(figures) | ratios
    return rows


def _ratios(figures: Sequence[Figures], baseline: Sequence[Figures]) -> Row:
    return {f"{name.partition('_')[0]}_ratio": rounds.ratio(figures, baseline, name) for name in (CPU, P50)}


async def product_ids(shop: Shop) -> list[str]:
    async with open_channel(shop["product-catalog"].address, shop["product-catalog"].identity) as channel:
        listed = await product_catalog_pb2_grpc.ProductCatalogServiceStub(channel).ListProducts(empty_pb2.Empty())
    return [product.id for product in listed.products]


async def prepare(shop: Shop, shape: Shape) -> list[checkout_pb2.PlaceOrderRequest]:
    """Fill a cart for each order; return the orders' requests."""
    users = [uuid.uuid4().hex for _ in range(shape.orders)]
    products = list(islice(cycle(await product_ids(shop)), shape.lines))
    waiting = zip(users, cycle(_QUANTITIES), strict=False)
    async with open_channel(shop["cart"].address, shop["cart"].identity) as channel:
        stub = cart_pb2_grpc.CartServiceStub(channel)

        async def fill() -> None:
            for user, quantity in waiting:
                for product in products:
                    item = cart_pb2.CartItem(product_id=product, quantity=quantity)
                    await stub.AddItem(cart_pb2.AddItemRequest(user_id=user, item=item))

        await asyncio.gather(*(fill() for _ in range(_CARTS_AT_ONCE)))
    requests = [sample_order(user, "bench@example.com") for user in users]
    for request, country in zip(requests, cycle(_COUNTRIES), strict=False):
        request.address.country = country
    return requests


async def place(shop: Shop, requests: Sequence[checkout_pb2.PlaceOrderRequest], in_flight: int) -> clients.Result:
    return await clients.ghz(
        shop["checkout"].address, METHOD, requests, in_flight, PROTO, certificates=shop["checkout"].certificates
    )


async def run(running: Running, shape: Shape) -> Figures:
    """Place orders; return their figures, CPU per order over all servers and the client's apart."""
    requests = await _prepare_warm(running, shape)
    await asyncio.sleep(_BACKGROUND_SECONDS / 2)
    before = running.cpu_seconds()
    result = await place(running.shop, requests, shape.in_flight)
    await asyncio.sleep(_BACKGROUND_SECONDS)
    return figures_of([result], running.cpu_seconds() - before, result.milliseconds)


async def run_in_turns(shops: Mapping[str, Running], shape: Shape) -> dict[str, Figures]:
    """Place the orders of all shops, a few of one and then a few of the next; return the figures of each shop.

    The speed of a shared machine changes within seconds, as much as what is compared differs.
    """
    a_turn = shape.orders // _TURNS + 1  # the first one does not count: it waits for a connection
    waiting = {
        name: await _prepare_warm(running, replace(shape, orders=_TURNS * a_turn)) for name, running in shops.items()
    }
    await asyncio.sleep(_BACKGROUND_SECONDS / 2)
    before = {name: running.cpu_seconds() for name, running in shops.items()}
    results: dict[str, list[clients.Result]] = {name: [] for name in shops}
    for turn in range(_TURNS):
        names = list(shops)
        for name in reversed(names) if turn % 2 else names:
            requests = waiting[name][turn * a_turn : (turn + 1) * a_turn]
            results[name].append(await place(shops[name].shop, requests, shape.in_flight))
            await asyncio.sleep(_SETTLED_SECONDS)
    await asyncio.sleep(_BACKGROUND_SECONDS)
    return {
        name: figures_of(
            results[name],
            running.cpu_seconds() - before[name],
            [each for result in results[name] for each in result.milliseconds[1:]],
        )
        for name, running in shops.items()
    }


async def _prepare_warm(running: Running, shape: Shape) -> list[checkout_pb2.PlaceOrderRequest]:
    """Prepare orders, and place one of each kind before: as in steady traffic, prices and quotes are cached then."""
    first = await prepare(running.shop, replace(shape, orders=len(_COUNTRIES) * len(_QUANTITIES)))
    requests = await prepare(running.shop, shape)
    await place(running.shop, first, shape.in_flight)
    return requests


def figures_of(results: Sequence[clients.Result], cpu_seconds: float, milliseconds: Sequence[float]) -> Figures:
    """Return the figures of a shop's orders.

    Args:
        results: of all its orders.
        cpu_seconds: of all servers meanwhile.
        milliseconds: that the orders took whose latency counts.
    """
    orders = sum(len(result.milliseconds) for result in results)
    p50, p99 = median(milliseconds), quantiles(milliseconds, n=100)[98]
    return {
        "orders_a_second": orders / sum(len(result.milliseconds) / result.calls_a_second for result in results),
        P50: p50,
        P99: p99,
        "p99_to_p50": p99 / p50,
        CPU: cpu_seconds / orders * 1000,
        "client_cpu_milliseconds": sum(result.client_cpu_seconds for result in results) / orders * 1000,
    }
