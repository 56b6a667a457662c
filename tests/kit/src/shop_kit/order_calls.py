"""`python -m shop_kit.order_calls FOLDER RATIO` prints how often an order calls each Python function, as JSON."""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from types import FrameType

import grpc
import uvloop
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from chassis.rpc import limits, server
from chassis.sql.migrate import migrate
from chassis.telemetry import logging
from chassis.telemetry.instruments import SCOPE, Telemetry
from checkout_service import outbox, placing, queue_workers
from checkout_service.domain import State
from checkout_service.metrics import OrderMetrics
from checkout_service.peers import channels, quotes, shipping
from shop.cart_pb2 import AddItemRequest, CartItem
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop_kit.running_shop import order_request
from shop_kit.settings import load_settings
from shop_kit.waiting import PATIENCE_SECONDS

WARM, ORDERS = 3, 20
PRODUCTS = ("linen-shirt", "merino-beanie", "rain-jacket")
LONG = 1e9
calls: Counter[str] = Counter()
counting, done = threading.Event(), asyncio.Event()


def count(frame: FrameType, event: str, _argument: object) -> None:
    if event == "call" and counting.is_set():
        calls[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] += 1


class Metrics(OrderMetrics):
    def record_change(self, order_id: str, state: State, reason: str = "") -> None:
        super().record_change(order_id, state, reason)
        if state is State.DONE:
            done.set()


async def place_orders(folder: Path, ratio: float) -> None:
    addresses: dict[str, object] = {"hmac_key": "k" * 32}
    provider = TracerProvider(ParentBasedTraceIdRatio(ratio), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter(), schedule_delay_millis=LONG))
    async with AsyncExitStack() as stack:
        for name in ("cart", "product_catalog", "currency", "shipping", "payment", "email", "checkout"):
            main = import_module(f"{name}_service.__main__")
            url = None
            if name in {"shipping", "payment", "email", "checkout"}:
                migrate(url := f"sqlite:///{folder / name}.db", main.MIGRATIONS)
            settings = load_settings(main.Settings, {**addresses, "database_url": url})
            service = server.Service(settings, Telemetry(provider.get_tracer(SCOPE), is_exported=True))
            await stack.enter_async_context(server.serving(service, main.build(settings, service)))
            addresses[f"{name}_addr"] = f"127.0.0.1:{service.port}"
            addresses[f"{name}_internal_addr"] = f"127.0.0.1:{service.internal_port}"
        pause = asyncio.sleep  # longer ones last for ever, which ends what runs in the background
        asyncio.sleep = lambda seconds: pause(seconds) if seconds < 1 else asyncio.Event().wait()  # type: ignore[assignment]
        to_cart = await stack.enter_async_context(grpc.aio.insecure_channel(str(addresses["cart_addr"])))
        to_checkout = await stack.enter_async_context(grpc.aio.insecure_channel(str(addresses["checkout_addr"])))
        for number in range(WARM + ORDERS):
            for product in PRODUCTS:
                item = CartItem(product_id=product, quantity=2)
                await CartServiceStub(to_cart).AddItem(AddItemRequest(user_id=str(number), item=item))
            place, request = CheckoutServiceStub(to_checkout).PlaceOrder, order_request(str(number), currency="EUR")
            done.clear()
            if number >= WARM:
                counting.set()
            await place(request)
            await done.wait()
            counting.clear()
        print(json.dumps({name: number // ORDERS for name, number in calls.items()}), flush=True)  # noqa: T201
        os._exit(0)  # without a drain, which would sleep


if __name__ == "__main__":
    logging.configure("shop", level="error")
    import_module("checkout_service.__main__").OrderMetrics = Metrics  # type: ignore[attr-defined]
    limits._CHECK_SECONDS = queue_workers.POLL_SECONDS = LONG
    placing.READ_WITHIN_SECONDS = outbox.SEND_NOW_SECONDS = shipping.SHIP_SECONDS = PATIENCE_SECONDS
    channels._READ_SECONDS = channels._SEND_SECONDS = PATIENCE_SECONDS  # longer than customers wait
    quotes.PRICE_TTL_SECONDS = quotes.CONVERSION_TTL_SECONDS = quotes.QUOTE_TTL_SECONDS = LONG
    threading.setprofile(count)
    sys.setprofile(count)
    uvloop.run(place_orders(Path(sys.argv[1]), float(sys.argv[2])))
