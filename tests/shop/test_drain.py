"""A rolling restart under load: each service's two replicas stop one after the other, and no call fails."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from chassis.client import channel
from chassis.errors import DomainError
from shop.ad_pb2 import AdRequest
from shop.ad_pb2_grpc import AdServiceStub
from shop.cart_pb2 import CartItem, GetCartRequest
from shop.cart_pb2_grpc import CartServiceStub
from shop.checkout_pb2_grpc import CheckoutServiceStub
from shop.currency_pb2 import CurrencyConversionRequest
from shop.currency_pb2_grpc import CurrencyServiceStub
from shop.email_pb2 import SendOrderConfirmationRequest
from shop.email_pb2_grpc import EmailServiceStub
from shop.empty_pb2 import Empty
from shop.money_pb2 import Money
from shop.payment_pb2 import ChargeRequest
from shop.payment_pb2_grpc import PaymentServiceStub
from shop.product_catalog_pb2_grpc import ProductCatalogServiceStub
from shop.recommendation_pb2 import ListRecommendationsRequest
from shop.recommendation_pb2_grpc import RecommendationServiceStub
from shop.shipping_pb2 import GetQuoteRequest
from shop.shipping_pb2_grpc import ShippingServiceStub
from shop_cli.commands.order import card_info
from shop_cli.local.ports import reserved
from shop_cli.local.processes import Process
from shop_cli.local.workspace import discover_services
from shop_testkit.running_shop import RunningShop, order_request
from shop_testkit.waiting import wait_until

CALLERS = 4
PAUSE_SECONDS = 0.02
# Long enough for a client to hear that the replica takes no more calls.
DRAIN = {"DRAIN_SECONDS": "0.7"}

Call = Callable[[grpc.aio.Channel], Awaitable[object]]


def dollars() -> Money:
    return Money(currency_code="USD", units=3)


def conversion() -> CurrencyConversionRequest:
    request = CurrencyConversionRequest(to_code="EUR")
    getattr(request, "from").CopyFrom(dollars())
    return request


def calls(shop: RunningShop) -> dict[str, Call]:
    """One call of each service, good to be repeated."""
    address = order_request().address
    items = [CartItem(product_id="p", quantity=1)]

    async def confirm(to: grpc.aio.Channel) -> object:
        order = await shop.order()
        return await EmailServiceStub(to).SendOrderConfirmation(
            SendOrderConfirmationRequest(email="a@example.com", order=order)
        )

    async def order(to: grpc.aio.Channel) -> object:
        request = order_request()
        await shop.fill_cart(request.user_id, lines=1)
        key = (("idempotency-key", str(uuid.uuid4())),)
        return await CheckoutServiceStub(to).PlaceOrder(request, metadata=key)

    charge = ChargeRequest(amount=dollars(), credit_card=card_info())
    return {
        "ad": lambda to: AdServiceStub(to).GetAds(AdRequest()),
        "cart": lambda to: CartServiceStub(to).GetCart(GetCartRequest(user_id="u")),
        "checkout": order,
        "currency": lambda to: CurrencyServiceStub(to).Convert(conversion()),
        "email": confirm,
        "payment": lambda to: PaymentServiceStub(to).Charge(charge),
        "product-catalog": lambda to: ProductCatalogServiceStub(to).ListProducts(Empty()),
        "recommendation": lambda to: RecommendationServiceStub(to).ListRecommendations(
            ListRecommendationsRequest(user_id="u")
        ),
        "shipping": lambda to: ShippingServiceStub(to).GetQuote(GetQuoteRequest(address=address, items=items)),
    }


@dataclass
class Load:
    """Callers that go on until they are stopped."""

    answered: int = 0
    failures: list[str] = field(default_factory=list)
    stopped: bool = False

    async def run(self, call: Call, to: grpc.aio.Channel) -> None:
        while not self.stopped:
            try:
                await call(to)
            except (DomainError, grpc.aio.AioRpcError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            else:
                self.answered += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def has_answered(self, more: int) -> None:
        """Wait until so many more calls were answered."""
        enough = self.answered + more
        await wait_until(lambda: self.answered >= enough or self.failures)


def instance_id(port: int) -> dict[str, str]:
    return {"OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={port}"}


async def serves_again(shop: RunningShop, replica: Process) -> None:
    """Wait until a replica answered calls of ours, which it exports, after what it has exported so far."""

    def answered() -> int:
        return sum(span.instance == str(replica.port) for span in shop.received.spans)

    before = answered()
    await wait_until(lambda: answered() > before)


@asynccontextmanager
async def two_replicas(shop: RunningShop, name: str, folder: Path) -> AsyncIterator[tuple[Process, Process]]:
    """Two processes of a service beside those of the shop, each with data of its own, which embedded stores need."""
    original = shop.processes[name]
    with reserved(2) as ports:
        replicas = [
            Process(original.program, port, {**original.environment, **DRAIN, **instance_id(port)}, folder / str(port))
            for port in ports
        ]
        try:
            for replica in replicas:
                await replica.start()
            for replica in replicas:
                await replica.wait_until_serving()
            yield replicas[0], replicas[1]
        finally:
            for replica in replicas:
                await replica.stop()


@pytest.mark.parametrize("name", [program.name for program in discover_services()])
async def test_replicas_restarted_one_by_one_under_load_fail_no_call(
    shop: RunningShop, name: str, tmp_path: Path
) -> None:
    load, call = Load(), calls(shop)[name]
    async with two_replicas(shop, name, tmp_path) as replicas:
        addresses = ",".join(replica.address for replica in replicas)
        service = f"shop.{''.join(word.capitalize() for word in name.split('-'))}Service"
        to = channel(f"ipv4:///{addresses}", service, timeout_seconds=10)
        callers = [asyncio.create_task(load.run(call, to)) for _ in range(CALLERS)]
        first, second = replicas
        await load.has_answered(more=20)
        statuses = [await first.stop()]
        await first.restart()
        await serves_again(shop, first)
        statuses.append(await second.stop())
        await load.has_answered(more=20)
        load.stopped = True
        await asyncio.gather(*callers)
        await to.close()
    assert load.failures == []
    assert statuses == [0, 0]
