"""A bounded load on a running shop, by the project's own client: every service's reads, and orders; nothing may fail.

`python load.py SECONDS RATE` makes RATE rounds a second for SECONDS. Addresses come from <SERVICE>_ADDR variables and
EMPLOYEE_API_URL. Prints `started` after a first round without a failure, then one line of JSON; exits 1 if a
call failed.
"""

import asyncio
import collections
import json
import os
import sys
import time
import urllib.request
import uuid
from collections.abc import Awaitable

from chassis import client
from chassis.errors import DomainError
from shop import (
    ad_pb2,
    ad_pb2_grpc,
    address_pb2,
    cart_pb2,
    cart_pb2_grpc,
    checkout_pb2,
    checkout_pb2_grpc,
    currency_pb2,
    currency_pb2_grpc,
    empty_pb2,
    money_pb2,
    payment_pb2,
    product_catalog_pb2,
    product_catalog_pb2_grpc,
    recommendation_pb2,
    recommendation_pb2_grpc,
    shipping_pb2,
    shipping_pb2_grpc,
)

WARM_UP_SECONDS = 60
ADDRESS = address_pb2.Address(street_address="Kanalstr. 1", city="Berlin", country="Germany", zip_code=10115)
CARD = payment_pb2.CreditCardInfo(
    credit_card_number="4242424242424242",
    credit_card_cvv=123,
    credit_card_expiration_year=2099,
    credit_card_expiration_month=12,
)


class Tally:
    """Counts calls, and failures by what was called and how it failed; keeps durations."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds: list[float] = []
        self.slowest: dict[str, float] = {}
        self.failed: collections.Counter[str] = collections.Counter()

    async def watch(self, name: str, call: Awaitable[object]) -> None:
        """Await a call and note its outcome."""
        self.calls += 1
        started = time.perf_counter()
        try:
            await call
        except (DomainError, OSError) as error:
            self.failed[f"{name}: {type(error).__name__} {error}"] += 1
            print(f"{time.time():.3f} {name}: {type(error).__name__} {error}", flush=True)  # noqa: T201
        seconds = time.perf_counter() - started
        self.seconds.append(seconds)
        self.slowest[name] = max(seconds, self.slowest.get(name, 0.0))

    def summary(self) -> dict[str, object]:
        """Tell what happened, durations in milliseconds."""
        ordered = sorted(self.seconds)
        return {
            "calls": self.calls,
            "failed": dict(self.failed),
            "p50_ms": round(ordered[len(ordered) // 2] * 1000, 1),
            "p99_ms": round(ordered[len(ordered) * 99 // 100] * 1000, 1),
            "slowest_ms": {name: round(seconds * 1000) for name, seconds in sorted(self.slowest.items())},
        }


class Shop:
    """Stubs of the services, over channels that retry as the shop's own services do."""

    def __init__(self) -> None:
        channel = self._channel
        self.ads = ad_pb2_grpc.AdServiceStub(channel("AD", "AdService", ["GetAds"]))
        self.carts = cart_pb2_grpc.CartServiceStub(channel("CART", "CartService", ["AddItem", "GetCart"]))
        self.catalog = product_catalog_pb2_grpc.ProductCatalogServiceStub(
            channel("PRODUCT_CATALOG", "ProductCatalogService", ["GetProduct", "ListProducts"])
        )
        self.checkout = checkout_pb2_grpc.CheckoutServiceStub(channel("CHECKOUT", "CheckoutService", ["PlaceOrder"]))
        self.currency = currency_pb2_grpc.CurrencyServiceStub(channel("CURRENCY", "CurrencyService", ["Convert"]))
        self.recommendations = recommendation_pb2_grpc.RecommendationServiceStub(
            channel("RECOMMENDATION", "RecommendationService", ["ListRecommendations"])
        )
        self.shipping = shipping_pb2_grpc.ShippingServiceStub(channel("SHIPPING", "ShippingService", ["GetQuote"]))

    @staticmethod
    def _channel(name: str, service: str, retried: list[str]) -> client.grpc.aio.Channel:
        return client.channel(os.environ[f"{name}_ADDR"], f"shop.{service}", timeout_seconds=15, retryable=retried)

    async def product_ids(self) -> list[str]:
        """List the catalog."""
        return [product.id for product in (await self.catalog.ListProducts(empty_pb2.Empty())).products]

    def reads(self, product_id: str) -> dict[str, Awaitable[object]]:
        """Make one read of every service that has reads."""
        item = cart_pb2.CartItem(product_id=product_id, quantity=1)
        price = money_pb2.Money(currency_code="USD", units=12, nanos=500_000_000)
        return {
            "GetProduct": self.catalog.GetProduct(product_catalog_pb2.GetProductRequest(id=product_id)),
            "GetQuote": self.shipping.GetQuote(shipping_pb2.GetQuoteRequest(address=ADDRESS, items=[item])),
            "GetAds": self.ads.GetAds(ad_pb2.AdRequest(context_keys=["kitchen"])),
            "ListRecommendations": self.recommendations.ListRecommendations(
                recommendation_pb2.ListRecommendationsRequest(user_id="load", product_ids=[product_id])
            ),
            "Convert": self.currency.Convert(
                currency_pb2.CurrencyConversionRequest(**{"from": price, "to_code": "EUR"})
            ),
            "employees": asyncio.to_thread(employees),
        }

    async def order(self, tally: Tally, product_id: str) -> None:
        """Fill a new cart and order it, each under a key."""
        user_id = uuid.uuid4().hex
        key = (("idempotency-key", user_id),)
        item = cart_pb2.CartItem(product_id=product_id, quantity=1)
        added = cart_pb2.AddItemRequest(user_id=user_id, item=item)
        await tally.watch("AddItem", self.carts.AddItem(added, metadata=key))
        request = checkout_pb2.PlaceOrderRequest(
            user_id=user_id, user_currency="EUR", address=ADDRESS, email="load@example.com", credit_card=CARD
        )
        await tally.watch("PlaceOrder", self.checkout.PlaceOrder(request, metadata=key))


def employees() -> None:
    """List the API's users; OSError when that fails."""
    url = f"{os.environ['EMPLOYEE_API_URL']}/api/auth/users"
    with urllib.request.urlopen(url, timeout=15) as answer:  # noqa: S310 - the address is ours
        answer.read()


async def one_round(shop: Shop, tally: Tally, product_id: str) -> None:
    """Make all reads side by side, and an order."""
    async with asyncio.TaskGroup() as tasks:
        for name, call in shop.reads(product_id).items():
            tasks.create_task(tally.watch(name, call))
        tasks.create_task(shop.order(tally, product_id))


async def warmed_up(shop: Shop) -> list[str]:
    """Repeat whole rounds, uncounted, until one succeeds: a cluster takes a moment to let a new pod through."""
    deadline = time.monotonic() + WARM_UP_SECONDS
    while True:
        tally = Tally()
        try:
            product_ids = await shop.product_ids()
            await one_round(shop, tally, product_ids[0])
        except DomainError:
            tally.failed["ListProducts"] += 1
        if not tally.failed:
            return product_ids
        if time.monotonic() > deadline:
            raise TimeoutError("the shop does not answer")
        await asyncio.sleep(1)


async def main(seconds: float, rate: float) -> int:
    """Start rounds at a steady rate whatever the answers do; 0 when every call succeeded."""
    shop, tally = Shop(), Tally()
    product_ids = await warmed_up(shop)
    print("started", flush=True)  # noqa: T201
    started = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * rate)):
            tasks.create_task(one_round(shop, tally, product_ids[number % len(product_ids)]))
            await asyncio.sleep(max(0.0, started + (number + 1) / rate - time.monotonic()))
    print(json.dumps(tally.summary()), flush=True)  # noqa: T201
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]), float(sys.argv[2]))))
