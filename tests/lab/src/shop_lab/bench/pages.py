"""Pages of the storefront: latency, and CPU over all processes beside that of the calls that a product page makes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from statistics import median, quantiles

import grpc
import httpx2

from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop.cart_pb2 import GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.recommendation_pb2 import ListRecommendationsRequest
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from shop_cli.local.processes import Shop
from shop_lab.bench import rounds
from shop_lab.bench.rounds import Figures, Rows
from shop_lab.bench.shops import Running

_CALLS = "the calls of a product page"
_PRODUCT, _CATEGORY = "copper-kettle", "kitchen"
_PATHS = {"home page": "/", "product page": f"/products/{_PRODUCT}", "cart page": "/cart"}
_VISITS = 100
_CPU = "cpu_milliseconds"

Visit = Callable[[], Awaitable[None]]


async def measure(running: Running, number_of_rounds: int) -> Rows:
    """Return the figures of each page with warm caches.

    `of_calls` is the CPU of a page divided by that of the calls of a product page, this client's included.
    """
    shop = running.shop
    async with AsyncExitStack() as stack:
        visitor = await stack.enter_async_context(httpx2.AsyncClient(base_url=f"http://{shop['storefront'].address}"))
        await visitor.get("/")
        visits = {name: _page(visitor, path) for name, path in _PATHS.items()}
        visits[_CALLS] = await _calls(shop, visitor.cookies["session"].partition(".")[0], stack)
        measurements = {
            name: partial(_round, running, visit, with_client=name == _CALLS) for name, visit in visits.items()
        }
        made = await rounds.interleaved(measurements, number_of_rounds)
    return {
        name: {**rounds.row(figures), "of_calls": rounds.ratio(figures, made[_CALLS], _CPU)}
        for name, figures in made.items()
    }


def _page(visitor: httpx2.AsyncClient, path: str) -> Visit:
    async def visit() -> None:
        response = await visitor.get(path)
        if response.status_code != HTTPStatus.OK:
            raise RuntimeError(f"{path} has status {response.status_code}")

    return visit


async def _calls(shop: Shop, user_id: str, stack: AsyncExitStack) -> Visit:
    """Return what makes the calls that the storefront makes for a product page while its caches are warm."""
    cart, recommendation, ad = [
        await stack.enter_async_context(grpc.aio.insecure_channel(shop[name].address))
        for name in ("cart", "recommendation", "ad")
    ]
    carts, recommendations, ads = CartServiceStub(cart), RecommendationServiceStub(recommendation), AdServiceStub(ad)

    async def visit() -> None:
        await asyncio.gather(
            carts.GetCart(GetCartRequest(user_id=user_id)),
            recommendations.ListRecommendations(ListRecommendationsRequest(user_id=user_id, product_ids=[_PRODUCT])),
            ads.GetAds(AdRequest(context_keys=[_CATEGORY])),
        )

    return visit


async def _round(running: Running, visit: Visit, *, with_client: bool) -> Figures:
    before, own, seconds = running.cpu_seconds(), time.process_time(), []
    for _ in range(_VISITS):
        started = time.perf_counter()
        await visit()
        seconds.append(time.perf_counter() - started)
    own = time.process_time() - own if with_client else 0.0
    return {
        "p50_milliseconds": median(seconds) * 1000,
        "p99_milliseconds": quantiles(seconds, n=100)[98] * 1000,
        _CPU: (running.cpu_seconds() - before + own) / _VISITS * 1000,
    }
