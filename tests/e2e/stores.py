"""Customers whose shop's database fails over; they repeat what fails under the same idempotency key, until SIGTERM.

`python stores.py orders IN_FLIGHT` prints `order ID` for each order, and `gap START SECONDS` when none succeeded for a
second. `python stores.py carts ADDITIONS` fills one cart after the other by so many additions at once, and prints
`cart QUANTITY repeated REPEATS` for each. Exits with status 1 if an order failed or a cart is not exact.

Beside this script is checkout's smoke module as `smoke_checkout.py`; addresses come from CART_ADDR and CHECKOUT_ADDR.
"""

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from chassis.errors import DomainError
from chassis.rpc.client import channel
from shop.cart_pb2 import AddItemRequest, CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2 import PlaceOrderRequest
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_smoke import SmokeCall

T = TypeVar("T")
REPEATED_FOR_SECONDS = 120
PAUSE_SECONDS = 0.2


class Customers:
    """Attributes: repeats, failed: how many calls. stopped: no new cart or order begins."""

    def __init__(self) -> None:
        self.carts = CartServiceStub(channel(os.environ["CART_ADDR"], "shop.CartService", timeout_seconds=10))
        address = os.environ["CHECKOUT_ADDR"]
        self.checkout = CheckoutServiceStub(channel(address, "shop.CheckoutService", timeout_seconds=10))
        self.repeats = self.failed = 0
        self.stopped = asyncio.Event()
        self.succeeded_at = time.time()

    async def repeat(self, call: Callable[..., Awaitable[T]], request: Any) -> T:
        """Make a call until it succeeds, under one key."""
        key, deadline = uuid.uuid4().hex, time.monotonic() + REPEATED_FOR_SECONDS
        while True:
            try:
                return await call(request, metadata=(("idempotency-key", key),))
            except DomainError as error:
                if time.monotonic() > deadline:
                    raise
                say(f"repeated {type(error).__name__} {error}")
            self.repeats += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def place_orders(self, in_flight: int) -> None:
        smoke_call: Callable[[str], SmokeCall] = import_module("smoke_checkout").smoke_call

        async def customer() -> None:
            while not self.stopped.is_set():
                order = smoke_call(uuid.uuid4().hex)
                try:
                    await self.repeat(self.carts.AddItem, cast("AddItemRequest", order.setup[0].request))
                    placed = await self.repeat(self.checkout.PlaceOrder, cast("PlaceOrderRequest", order.request))
                except DomainError as error:
                    self.failed += 1
                    say(f"failed {type(error).__name__} {error}")
                else:
                    self._succeed(placed.order.order_id)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(customer())

    def _succeed(self, order_id: str) -> None:
        before, self.succeeded_at = self.succeeded_at, time.time()
        say(f"order {order_id}")
        if self.succeeded_at - before > 1:
            say(f"gap {before:.1f} {self.succeeded_at - before:.1f}")

    async def fill_carts(self, additions: int) -> bool:
        while not self.stopped.is_set():
            user, before = uuid.uuid4().hex, self.repeats
            request = AddItemRequest(user_id=user, item=CartItem(product_id="cast-iron-pan", quantity=1))
            await asyncio.gather(*(self.repeat(self.carts.AddItem, request) for _ in range(additions)))
            (item,) = (await self.repeat(self.carts.GetCart, GetCartRequest(user_id=user))).items
            say(f"cart {item.quantity} repeated {self.repeats - before}")
            if item.quantity != additions:
                return False
        return True


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


async def main(what: str, count: int) -> int:
    customers = Customers()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, customers.stopped.set)
    if what == "carts":
        return 0 if await customers.fill_carts(count) else 1
    await customers.place_orders(count)
    return 1 if customers.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
