"""Customers in a pod, by what they do:

`python orders.py burst ORDERS LINES IN_FLIGHT` fills carts, prints `filled`, waits for PAUSE_SECONDS, then orders each
as fast as the shop answers. Prints a line of JSON, and exits with status 1 if an order failed.

`python orders.py repeat IN_FLIGHT` repeats what fails under the same idempotency key, until SIGTERM. Prints `order ID`
for each order, and `gap START SECONDS` when none succeeded for a second. Exits with status 1 if an order failed.

`python orders.py carts ADDITIONS` fills one cart after the other by so many additions at once, also until SIGTERM, and
prints `cart QUANTITY repeated REPEATS` for each. Exits with status 1 if a cart is not exact.

Beside this script is load.py with what it needs.
"""

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from load import Shop, new_key

from chassis.errors import DomainError
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderResponse
from shop.empty_pb2 import Empty
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop_smoke import send

T = TypeVar("T")
PAUSE_SECONDS = 20
REPEAT_PAUSE_SECONDS = 0.2
REPEATED_FOR_SECONDS = 120


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


async def for_each(users: Iterable[str], work: Callable[[str], Awaitable[object]], in_flight: int) -> None:
    """Do the work for all users, for so many of them at once."""
    remaining = iter(users)

    async def worker() -> None:
        for user in remaining:
            await work(user)

    await asyncio.gather(*(worker() for _ in range(in_flight)))


async def burst(shop: Shop, orders: int, lines: int, in_flight: int) -> int:
    """Print orders per second and the failures by kind; return 0 if there is none."""
    carts = CartServiceStub(shop.channels["shop.CartService"])
    catalog = ProductCatalogServiceStub(shop.channels["shop.ProductCatalogService"])
    products = (await catalog.ListProducts(Empty())).products[:lines]
    users = [new_key() for _ in range(orders)]
    failed: Counter[str] = Counter()

    async def fill(user: str) -> None:
        for product in products:
            item = CartItem(product_id=product.id, quantity=2)
            await carts.AddItem(AddItemRequest(user_id=user, item=item))

    async def place(user: str) -> None:
        try:
            await send(replace(shop.makers["checkout"](user), setup=()), shop.channels, key=user)
        except DomainError as error:
            failed[f"{type(error).__name__} {error}"] += 1

    await for_each(users, fill, in_flight)
    say("filled")
    await asyncio.sleep(PAUSE_SECONDS)
    started = time.perf_counter()
    await for_each(users, place, in_flight)
    seconds = time.perf_counter() - started
    say(json.dumps({"orders": orders, "orders_a_second": round(orders / seconds, 1), "failed": dict(failed)}))
    return 1 if failed else 0


class Repeating:
    """Customers who repeat what fails. Attributes: repeats: how many calls. stopped: no new cart or order begins."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self.repeats = 0
        self.stopped = asyncio.Event()
        self._succeeded_at = time.time()

    async def repeat(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call until it succeeds."""
        deadline = time.monotonic() + REPEATED_FOR_SECONDS
        while True:
            try:
                return await call()
            except DomainError as error:
                if time.monotonic() > deadline:
                    raise
                say(f"repeated {type(error).__name__} {error}")
            self.repeats += 1
            await asyncio.sleep(REPEAT_PAUSE_SECONDS)

    async def place_orders(self) -> int:
        """Place one order after the other; return how many failed."""
        failed = 0
        while not self.stopped.is_set():
            user = new_key()
            try:
                placed = await self.repeat(partial(self._shop.send, "checkout", user))
            except DomainError as error:
                failed += 1
                say(f"failed {type(error).__name__} {error}")
                continue
            before, self._succeeded_at = self._succeeded_at, time.time()
            say(f"order {PlaceOrderResponse.FromString(placed).order.order_id}")
            if self._succeeded_at - before > 1:
                say(f"gap {before:.1f} {self._succeeded_at - before:.1f}")
        return failed

    async def fill_carts(self, additions: int) -> int:
        """Fill carts; return 1 as soon as one is not exact."""
        carts = CartServiceStub(self._shop.channels["shop.CartService"])
        while not self.stopped.is_set():
            user, before = new_key(), self.repeats
            request = AddItemRequest(user_id=user, item=CartItem(product_id="cast-iron-pan", quantity=1))
            keys = (new_key() for _ in range(additions))
            calls = (partial(carts.AddItem, request, metadata=(("idempotency-key", key),)) for key in keys)
            await asyncio.gather(*map(self.repeat, calls))
            (item,) = (await self.repeat(partial(carts.GetCart, GetCartRequest(user_id=user)))).items
            say(f"cart {item.quantity} repeated {self.repeats - before}")
            if item.quantity != additions:
                return 1
        return 0


async def main(what: str, *numbers: int) -> int:
    """Return the exit status."""
    shop = Shop({"burst": ["checkout", "product_catalog"], "repeat": ["checkout"], "carts": ["cart"]}[what])
    await shop.warm_up()
    if what == "burst":
        return await burst(shop, *numbers)
    customers = Repeating(shop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, customers.stopped.set)
    if what == "carts":
        return await customers.fill_carts(*numbers)
    return 1 if sum(await asyncio.gather(*(customers.place_orders() for _ in range(numbers[0])))) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:]))))
